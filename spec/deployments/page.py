"""The list of deployments, as cells of a table and as `docs/deployments.md`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kvproof.core.config import Config
from kvproof.spec.deployments import model, schema
from kvproof.spec.deployments.schema import Deployment, Fact


def sizes(deployment: Deployment) -> Config | None:
    """Return the resolved sizes of a deployment, None if the model lacks something for it."""
    return None if model.lacks(deployment) else model.configure(deployment, 2, deployment.settings.step_tokens.value)


def basis(deployment: Deployment) -> str:
    """Return how many numbers were published, computed and assumed."""
    count = Counter(value.basis for _, value in schema.values(deployment))
    return ", ".join(f"{count[name]} {name}" for name in ("published", "computed", "assumed") if count[name])


def groups(deployment: Deployment) -> str:
    """Return the groups in words: how many of which kind, with the tokens of a block on one rank."""
    parts = []
    for group in deployment.groups:
        window = f" window {group.window.value:,}" if group.window is not None else ""
        count = f"{group.count.value} x " if group.count.value > 1 else ""
        parts.append(f"{count}{group.name} {group.block_size.value:,}{window}")
    return ", ".join(parts)


def host(deployment: Deployment) -> str:
    """Return the host tier in words, nothing without one."""
    tier = deployment.settings.host
    if tier is None:
        return ""
    return tier.mode.value + (f", {tier.blocks.value:,} blocks" if tier.blocks is not None else "")


def spans(config: Config) -> str:
    """Return E of the groups, each value once, in their order."""
    return " / ".join(f"{size:,}" for size in dict.fromkeys(config.sizes))


def cells(deployment: Deployment) -> tuple[str, ...]:
    """Return name, title, groups, E, S, hit alignment, host tier, basis of the numbers, and whether the model covers it."""
    config = sizes(deployment)
    lacking = model.lacks(deployment)
    if config is None:
        return (
            deployment.name,
            deployment.title,
            groups(deployment),
            "",
            "",
            "",
            host(deployment),
            basis(deployment),
            f"no: {lacking}",
        )
    reach = f"A = {config.alignment:,}" + (" (gate open)" if config.fine_grained else "")
    return (
        deployment.name,
        deployment.title,
        groups(deployment),
        spans(config),
        f"{config.scheduler_block_size:,}",
        reach,
        host(deployment),
        basis(deployment),
        "yes",
    )


def as_markdown(deployments: Sequence[Deployment]) -> str:
    """Return `docs/deployments.md`."""
    lines = [*INTRODUCTION, "", "## The shipped deployments", ""]
    lines += ["| name | groups: tokens of a block on one rank | N | E | S | H | A | gate | L | row entries |"]
    lines += ["|---|---|---|---|---|---|---|---|---|---|"]
    lines += [_row(deployment) for deployment in deployments]
    for deployment in deployments:
        lines += ["", *_section(deployment)]
    return "\n".join(lines) + "\n"


def _row(deployment: Deployment) -> str:
    config = sizes(deployment)
    name = f"[`{deployment.name}`](#{deployment.name.replace('.', '')})"
    if config is None:
        return f"| {name} | {groups(deployment)} | | | | | | not yet: {model.lacks(deployment)} | | |"
    widths = " / ".join(f"{width:,}" for width in dict.fromkeys(config.row_capacity))
    numbers = [config.scheduler_block_size, config.hash_block_size, config.alignment]
    shown = " | ".join(f"{number:,}" for number in numbers)
    gate = "open" if config.fine_grained else "closed"
    return (
        f"| {name} | {groups(deployment)} | {config.dcp_size} | {spans(config)} | {shown} | {gate} | "
        f"{config.max_model_len:,} | {widths} |"
    )


def _section(deployment: Deployment) -> list[str]:
    lines = [f"### {deployment.name}", "", f"{deployment.title}. {deployment.about}"]
    lines += ["", f"Status: {STATUS[deployment.status]}. Numbers: {basis(deployment)}."]
    assumed = [(path, value) for path, value in schema.values(deployment) if value.basis == "assumed"]
    if assumed:
        lines += ["", "Assumed:", ""]
        lines += [f"- `{path}` = {_value(value.value)}: {value.assumed}" for path, value in assumed]
    if deployment.facts:
        lines += ["", "Known hits, asked of the model by the tests:", ""]
        lines += [f"- {_fact(deployment, fact)}" for fact in deployment.facts]
    if deployment.sources:
        lines += ["", "Sources:", ""]
        lines += [f"- [{key}]({source.url}): {source.says}" for key, source in deployment.sources.items()]
    return lines


def _fact(deployment: Deployment, fact: Fact) -> str:
    where = ", ".join(f"[{key}]({deployment.sources[key].url})" for key in fact.sources) or fact.assumed
    gate = ", gate closed" if fact.gate == "closed" else ""
    return f"{fact.says}: prompts of {fact.prompt:,} and {fact.resend:,} tokens{gate}, hit {fact.hit:,} ({where})"


def _value(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value).lower()


STATUS = {
    "real": "as served somewhere",
    "example": "an example, plausible but not read anywhere",
    "test": "the sizes of a test or a report",
}

INTRODUCTION = """\
# Deployments

Real geometries for [`kvproof explain`](explain.md) and for the tests, each number with its source. The files lie in
`spec/data/deployments/`; `kvproof explain --deployment NAME --sources` prints one, `--config FILE` takes one of yours.
Written by `kvproof explain --list --write docs/deployments.md`.

Every number is *published* (its sources are named), *computed* (it follows from other numbers by a rule below; the reader of
the file recomputes block sizes and group counts) or *assumed* (with the reason). Nothing is left without one of the three.

## Rules

1. **Block size of a model with recurrent layers.** The page of an attention block must hold one recurrent state: block size =
   `u * ceil(state bytes / (u * bytes per token))` for one layer on one rank, with units u of 16 tokens, 128 with MLA, or
   more by command line. The state is a matrix (`value heads / TP * dim * dim` elements) and a convolution (`kernel - 1 +
   drafts` columns of `(2 * key heads + value heads) * dim / TP` channels, 2 bytes each). So the block size depends on TP, on
   the data types and on the number of draft tokens. In `align` mode the recurrent block has the same size.
2. **Groups.** Layers of one kind are cut into groups of equal size: the smallest layer count of any kind, or the largest if
   it is below 1.5 times the smallest. 24 + 69 layers make 1 + 3 groups.
3. **E, S, H, the gate, rows**: sections 2.1, 2.2, 2.4 and 2.5 of [the semantics](semantics.md).
4. **Defaults of vLLM 0.33.0**: retention 0 (sparse), interleave 1, `align` mode with prefix caching.
5. **Hit of the same prompt sent again**, P tokens: `floor((P-1)/A) * A`, with an EAGLE drop `max(floor(P/A) * A - A, 0)`. A
   bound: it is reached if a chunk of the first prompt ended there.

## The format

TOML (or JSON, if the name ends in `.json`), strict: unknown and missing fields are refused with the place.

```toml
format = "kvproof-deployment"
version = 1
name = "mine"
title = "My model on four ranks"
status = "example"                # real, example or test
about = "What is special about it."

[settings]
dcp_size = { value = 4, from = ["pr"] }
max_model_len = 131072            # a bare value counts as assumed
retention = 0                     # "dense", 0 (sparse) or a multiple of S
step_tokens = { value = 8192, assumed = "the default" }

[[groups]]
name = "attention"
kind = "full_attention"           # mamba_align, mamba_stable, sliding_window, chunked_local, scratch
count = 1
block_size = 64                   # tokens of a block on one rank

[[groups]]
name = "Mamba"
kind = "mamba_align"
count = 2
block_size = 64

[sources.pr]
url = "https://github.com/vllm-project/vllm/pull/50493"
says = "what can be read there"
```

Optional in `[settings]`: `tensor_parallel`, `interleave`, `hash_block_size`, `num_draft_tokens`, `eagle`,
`connectors = [{ name = "...", divergent = { value = false, assumed = "..." } }]`, and a host tier,
`host = { mode = "eager", blocks = 1024 }` (or `lazy`; without `blocks` nothing is evicted from it). Optional in a group:
`layers` (of all its groups together), `sharded`, `window`, `speculative_blocks`, `draft`. `[arithmetic]` holds what rule 1
needs, `[[facts]]` known hits; the shipped files show both.""".splitlines()
