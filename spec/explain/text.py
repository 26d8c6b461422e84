"""An answer on a terminal. Colour repeats what letters and words say."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvproof.spec.deployments import schema
from kvproof.spec.deployments.schema import Deployment
from kvproof.spec.explain import rules, words
from kvproof.spec.explain.answer import Answer, ClassAnswer

MOST_STRETCHES = 14
STYLES: dict[str, str] = {
    "H": "bold green",
    "+": "cyan",
    "o": "cyan",
    "d": "magenta",
    "x": "red",
    "r": "yellow",
    "k": "yellow",
    "s": "yellow",
}


def head(console: Console, deployment: Deployment) -> None:
    """Print what a deployment is."""
    status = {"real": "as served", "example": "an example, not read anywhere", "test": "sizes of a test"}[deployment.status]
    console.print(Text.assemble((deployment.name, "bold"), f": {deployment.title} ({status})"), soft_wrap=True)
    line(console, deployment.about)


def geometry(console: Console, answer: Answer) -> None:
    """Print the geometry: the groups with their rows, the sizes that they share, and the gate."""
    line(console)
    heading(console, "Geometry")
    grid = table(
        ("group", "left"),
        ("kind", "left"),
        ("in vLLM", "left"),
        ("layers", "right"),
        ("bs", "right"),
        ("over ranks", "left"),
        ("E", "right"),
        ("window", "right"),
        ("spare", "right"),
        ("row entries", "right"),
        ("row bytes", "right"),
    )
    for row in answer.rows:
        grid.add_row(
            row.name + (" (draft)" if row.draft else ""),
            row.kind,
            words.ENGINE_KINDS[row.kind],
            _optional(row.layers),
            f"{row.block_size:,}",
            f"split, {answer.config.dcp_size:,}" if row.sharded else "whole on each",
            f"{row.span:,}",
            _optional(row.window),
            _optional(row.speculative_blocks or None),
            f"{row.entries:,}",
            f"{row.row_bytes:,}",
        )
    console.print(grid)
    line(console, "bs: tokens of a block on one rank (spec.block_size); E: tokens under a table entry (manager.block_size);")
    line(console, "spare: speculative blocks; row: block-table row of one request at L tokens, 4 bytes an entry.")
    line(console)
    shared = table(("here", "left"), ("in vLLM", "left"), ("value", "right"), ("what it is", "left"))
    for size in words.sizes(answer):
        shared.add_row(size.symbol, size.engine, size.value, size.what)
    console.print(shared)
    line(console, f"The gate of fine-grained hits (2.4) is {words.why_gate(answer)}.")
    for condition in answer.conditions:
        line(console, f"  {condition.number}. {'yes' if condition.holds else 'NO '}  {condition.asks}: {condition.values}")


def story(console: Console, answer: Answer, closed: Answer | None) -> None:
    """Print what happened: chunks of the first prompt, candidates of the second, and the joint hit."""
    question = answer.question
    line(console)
    heading(
        console,
        f"First prompt: {words.count(question.prompt, 'token')}, at most {question.step_tokens:,} a step "
        f"(max_num_batched_tokens), pool of {answer.config.num_blocks:,} blocks",
    )
    _chunks(console, answer)
    if question.between:
        line(console, f"Then an unrelated prompt of {words.count(question.between, 'token')} runs and takes blocks.")
    for group, boundary in question.evicted:
        line(console, f"Then the block with the key of {boundary:,} in {answer.rows[group].name} loses its keys.")
    line(console)
    same = question.prompt == question.resend == question.shared
    second = "the same" if same else f"the first {question.shared:,} as before"
    heading(console, f"Second prompt: {words.count(question.resend, 'token')}, {second}")
    bars(console, answer)
    for found in answer.classes:
        candidates(console, found)
    _result(console, answer, closed)


def _chunks(console: Console, answer: Answer) -> None:
    grid = table(("chunk", "right"), ("to", "right"), ("why it ends there (T22)", "left"))
    previous: list[tuple[int, int, str, int]] = []
    for chunk in answer.chunks:
        if previous and previous[-1][2] == chunk.why:
            first, _, why, count = previous[-1]
            previous[-1] = (first, chunk.end, why, count + 1)
        else:
            previous.append((chunk.start, chunk.end, chunk.why, 1))
    for start, end, why, count in previous:
        grid.add_row(f"{start:,}", f"{end:,}", why if count == 1 else f"{count:,} chunks, each: {why}")
    console.print(grid)


def candidates(console: Console, found: ClassAnswer) -> None:
    """Print the candidates of a class, neighbours with one rule put together."""
    line(console)
    line(
        console,
        f"{found.name} ({found.kind}): a candidate every {words.count(found.unit, 'token')}; alone it would hit {found.hit:,}",
    )
    grid = table(("boundaries", "right"), ("of them", "right"), ("rule", "left"), ("why", "left"))
    for stretch in words.interesting(found, MOST_STRETCHES):
        if isinstance(stretch, int):
            grid.add_row("...", "", "", f"{words.count(stretch, 'more line')}; --json has every boundary")
            continue
        where = f"{stretch.last:,}" if stretch.count == 1 else f"{stretch.first:,} to {stretch.last:,}"
        sign = words.SIGNS[stretch.rule]
        grid.add_row(where, f"{stretch.count:,}", Text(f"{sign} {stretch.rule}", style=STYLES.get(sign, "")), stretch.text)
    console.print(grid)


def _result(console: Console, answer: Answer, closed: Answer | None) -> None:
    question = answer.question
    line(console)
    heading(console, "The joint hit (T11)")
    line(console, f"  at most n-1 = {words.count(question.resend - 1, 'token')} (max_cache_hit_length)")
    for lowering in answer.lowerings:
        line(console, f"  {lowering.name}, asked up to {lowering.asked:,}: {lowering.hit:,}")
    hit = Text(f"joint hit {answer.joint:,}", style="bold green" if answer.joint else "bold")
    again = question.resend - answer.joint
    verb = "is" if again == 1 else "are"
    rest = f" of {words.count(question.resend, 'token')} ({words.share(answer)}), {again:,} {verb} computed again"
    console.print(hit + Text(rest, style="none"), soft_wrap=True)
    line(console, words.cause(answer))
    if answer.diverged:
        line(
            console,
            f"The lookup reports {answer.local:,}, the depth of full attention, because every connector serves divergent hits "
            f"(T13). Without external tokens it is repeated, and the joint hit counts (T14).",
        )
    if answer.junction and answer.config.snapshots:
        line(
            console,
            f"Junction {answer.junction:,}: some group had that much. A chunk of this prompt will end there, or at the last "
            "whole state block before it, so that a third prompt may hit it (T22).",
        )
    about_gate = words.gate_line(answer, closed)
    if about_gate is not None:
        line(console, about_gate)


def legend(console: Console, classes: tuple[ClassAnswer, ...]) -> None:
    """Print what the rules mean that occur among the candidates of some classes."""
    used = {reason.rule for found in classes for reason in found.candidates}
    line(console)
    line(console, "Rules:")
    for rule, meaning in rules.MEANINGS.items():
        if rule in used:
            line(console, f"  {words.SIGNS[rule]} {rule}: {meaning}")


def bars(console: Console, answer: Answer) -> None:
    """Print a bar per class over the second prompt, with a ruler and what the letters mean."""
    drawn = tuple(words.bar(found, answer.question.resend) for found in answer.classes)
    width = max(len(found.name) for found in answer.classes)
    for found, cells in zip(answer.classes, drawn, strict=True):
        console.print(Text(f"  {found.name:<{width}}  |") + _coloured(cells) + Text("|"), soft_wrap=True)
    total = answer.question.resend
    ruler = f"0{total:>{words.BAR_CELLS - 1},}"
    line(console, f"  {'':<{width}}   {ruler}  one letter: {words.count(-(-total // words.BAR_CELLS), 'token')}")
    line(console, f"  {words.signs_used(drawn)}")


def sources(console: Console, deployment: Deployment) -> None:
    """Print every number with where it comes from, and the known facts."""
    line(console)
    heading(console, "Where the numbers come from")
    grid = table(("number", "left"), ("value", "right"), ("basis", "left"), ("from", "left"))
    for path, value in schema.values(deployment):
        shown = f"{value.value:,}" if isinstance(value.value, int) and not isinstance(value.value, bool) else str(value.value)
        origin = "; ".join(filter(None, (" ".join(value.sources), value.computed, value.assumed)))
        grid.add_row(path, shown.lower(), value.basis, origin)
    console.print(grid)
    for key, source in deployment.sources.items():
        line(console, f"  {key}: {source.url}")
        line(console, f"    {source.says}")
    for fact in deployment.facts:
        shared = "" if fact.shared is None else f" --shared {fact.shared}"
        gate = " --gate closed" if fact.gate == "closed" else ""
        known = " ".join(fact.sources) or fact.assumed
        line(console, f"  known: {fact.says}; hit {fact.hit:,} [{known}]")
        line(
            console,
            f"    kvproof explain --deployment {deployment.name} --prompt {fact.prompt} --resend {fact.resend}{shared}{gate}",
        )


# --- small things -------------------------------------------------------------------------------------------------


def table(*heads: tuple[str, str]) -> Table:
    """Return an empty table; a head is (name, left or right)."""
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for name, side in heads:
        grid.add_column(name, justify="right" if side == "right" else "left", no_wrap=side == "right")
    return grid


def _optional(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def heading(console: Console, text: str) -> None:
    """Print a heading."""
    console.print(Text(text, style="bold"), soft_wrap=True)


def line(console: Console, text: str = "") -> None:
    """Print a line, never broken."""
    console.print(Text(text), soft_wrap=True)


def _coloured(cells: Sequence[str]) -> Text:
    text = Text()
    for sign in cells:
        text.append(sign, style=STYLES.get(sign, "dim"))
    return text
