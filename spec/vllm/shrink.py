"""The smallest case found that still breaks the same law: fewer features of the configuration, operations and prompt tokens.

Every candidate is run on the release and judged again, so the result is a run of its own. The number of runs is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from attrs import define, evolve

from kvproof.core.errors import ConfigError
from kvproof.spec.traces.format import Config, GroupConfig
from kvproof.spec.vllm import scope_parts
from kvproof.spec.vllm.runs import Case, Outcome, Play
from kvproof.spec.vllm.scope_parts import Scope
from kvproof.spec.vllm.scripts import Op, Script

MAX_RUNS = 250


@define(slots=True)
class Shrinker:
    """Runs candidates for one law; ``best`` is the smallest that broke it, ``runs`` counts them."""

    play: Play
    law: str
    best: Outcome
    max_runs: int = MAX_RUNS
    runs: int = 0

    def tried(self, case: Case) -> bool:
        """Run a candidate that would be smaller; keep it if it breaks the law."""
        if self.spent or cost(case) >= cost(self.best.case):
            return False
        return self.kept(case)

    def kept(self, case: Case) -> bool:
        """Run a candidate; keep it if it breaks the law."""
        self.runs += 1
        outcome = self.play(case)
        if outcome.unsupported or outcome.broken(self.law) is None:
            return False
        self.best = outcome
        return True

    @property
    def spent(self) -> bool:
        """Tell whether no run is left."""
        return self.runs >= self.max_runs


def shrink(play: Play, outcome: Outcome, law: str, max_runs: int = MAX_RUNS) -> Outcome:
    """Return the outcome of the smallest case found that breaks ``law`` as ``outcome`` does, that one if nothing smaller does.

    ``play`` runs a case on the release and judges it by the law; what it returns keeps the recording's lines.
    """
    shrinker = Shrinker(play, law, outcome, max_runs)
    _spelled(shrinker)
    before = None
    while before != (before := cost(shrinker.best.case)) and not shrinker.spent:
        _cut(shrinker)
        _without_chunks(shrinker, smallest=8)
        _plainer(shrinker)
        _without_requests(shrinker)
        _without_chunks(shrinker)
        _shorter_prompts(shrinker)
        _plainer_operations(shrinker)
    _renumbered(shrinker)
    return shrinker.best


def cost(case: Case) -> tuple[int, int, int, int, int]:
    """Order cases: features and groups of the configuration, operations, prompt tokens, the other numbers, the pool."""
    return (
        features(case.scope.config),
        len(case.script),
        sum(len(op[1]) for op in case.script if op[0] == "submit"),
        sum(_plainness(op) for op in case.script),
        case.scope.config.num_device_blocks,
    )


def features(config: Config) -> int:
    """Count what a configuration has beyond the plainest one."""
    scheduler = config.scheduler
    host = config.host
    count = 10 * len(config.groups) + sum(group.num_speculative_blocks or 0 for group in config.groups)
    count += config.dcp_world_size.bit_length() - 1 + config.use_eagle + config.num_draft_tokens
    count += config.retention_interval not in (None, 0)
    count += 3 * len(config.connectors or ())
    if host is not None:
        count += 3 + host.events + host.workers - 1
    if scheduler is not None:
        count += (scheduler.policy != "fcfs") + (scheduler.runner != "v2") + (scheduler.long_prefill_token_threshold > 0)
        count += scheduler.reserve_full_sequence + scheduler.concurrent_batches - 1 + scheduler.asynchronous
    return count


def _plainness(op: Op) -> int:
    if op[0] == "submit":
        return int(op[2]) + abs(int(op[3]))
    if op[0] == "update" and isinstance(op[1], dict):
        return sum(len(tokens) for tokens in op[1].values()) + 2 * sum(len(tokens) for tokens in op[2].values())
    return int(op[1] != 0) if op[0] == "update" else 0


# --- operations ------------------------------------------------------------------------------------------------------


def spelled(lines: bytes) -> Script:
    """Return the inputs of a recording as a script in its exact form: what it settled is spelled out step by step."""
    script: list[Op] = []
    drafts: dict[str, Any]
    for line in lines.splitlines()[2:]:
        row = msgspec.json.decode(line)
        op, args, result = row["op"], row["args"], row.get("result", {})
        if op == "submit":
            script.append(("submit", args["tokens"], args["max_tokens"], args["priority"], args["request"]))
        elif op == "update":
            drafts = result.get("next_drafts", {})
            script.append(("update", args["sampled"], drafts))
        elif op == "abort":
            script.append(("abort", args["request"]))
        elif op == "complete_store":
            script.append(("complete_store", max(args["acks"], 1)))
        elif op == "reset":
            script.append(("reset", args["preempt_running"], args["host"]))
        else:
            script.append((op,))
    return tuple(script)


def _spelled(shrinker: Shrinker) -> None:
    """Take the exact form of the script, cut behind the operation that broke the law, if it breaks the law as well."""
    best = shrinker.best
    breach = best.broken(shrinker.law)
    if not best.lines or breach is None:
        return
    script = spelled(best.lines)
    plain = tuple(("update", 0) if op[0] == "update" else op for op in script)
    ends = dict.fromkeys(end for end in (breach.operation, len(script)) if end > 0)
    for candidate in (plain, script):
        for end in ends:
            if shrinker.kept(evolve(best.case, script=candidate[:end])):
                return


def _cut(shrinker: Shrinker) -> None:
    """Leave out what comes behind the operation that broke the law."""
    best = shrinker.best
    breach = best.broken(shrinker.law)
    if breach is not None and 0 < breach.operation < len(best.case.script):
        shrinker.tried(evolve(best.case, script=best.case.script[: breach.operation]))


def _without_chunks(shrinker: Shrinker, smallest: int = 1) -> None:
    """Leave out runs of operations, long runs first, from the end to the start."""
    size = max(len(shrinker.best.case.script) // 2, 1)
    while size >= smallest and not shrinker.spent:
        stop = len(shrinker.best.case.script)
        while stop > 0 and not shrinker.spent:
            script = shrinker.best.case.script
            start = max(stop - size, 0)
            if start or stop < len(script):
                shrinker.tried(evolve(shrinker.best.case, script=(*script[:start], *script[stop:])))
            stop = min(start, len(shrinker.best.case.script))
        size //= 2


def _without_requests(shrinker: Shrinker) -> None:
    """Leave out whole requests, the last one first."""
    at = len(shrinker.best.case.script) - 1
    while at >= 0 and not shrinker.spent:
        script = shrinker.best.case.script
        if at < len(script) and script[at][0] == "submit":
            name = script[at][4] if len(script[at]) > 4 else None
            kept = (op for op in script[at + 1 :] if name is None or op[:2] != ("abort", name))
            shrinker.tried(evolve(shrinker.best.case, script=(*script[:at], *kept)))
        at -= 1


def _shorter_prompts(shrinker: Shrinker) -> None:
    """Shorten all prompts together, then each by itself."""
    most = max((len(op[1]) for op in shrinker.best.case.script if op[0] == "submit"), default=0)
    for length in _lengths(most):
        case = shrinker.best.case
        shrinker.tried(evolve(case, script=tuple(_shortened(op, length) for op in case.script)))
    for at in range(len(shrinker.best.case.script)):
        op = shrinker.best.case.script[at]
        if op[0] != "submit":
            continue
        for length in _lengths(len(op[1])):
            _replaced(shrinker, at, _shortened(op, length))


def _lengths(length: int) -> list[int]:
    wanted = (length // 2, length * 3 // 4, length - 8, length - 4, length - 2, length - 1)
    return [shorter for shorter in dict.fromkeys(wanted) if 0 < shorter < length]


def _shortened(op: Op, length: int) -> Op:
    return (op[0], op[1][:length], *op[2:]) if op[0] == "submit" else op


def _plainer_operations(shrinker: Shrinker) -> None:
    """One token of output, no priority, no drafts, outputs of number 0."""
    for at in range(len(shrinker.best.case.script)):
        op = shrinker.best.case.script[at]
        if op[0] == "submit":
            _replaced(shrinker, at, (op[0], op[1], 1, *op[3:]))
            op = shrinker.best.case.script[at]
            _replaced(shrinker, at, (op[0], op[1], op[2], 0, *op[4:]))
        elif op[0] == "update" and op[1] != 0:
            _replaced(shrinker, at, ("update", 0))


def _replaced(shrinker: Shrinker, at: int, op: Op) -> None:
    script = shrinker.best.case.script
    if op != script[at]:
        shrinker.tried(evolve(shrinker.best.case, script=(*script[:at], op, *script[at + 1 :])))


def _renumbered(shrinker: Shrinker) -> None:
    """Name prompt tokens 1, 2, 3, ... in order of appearance, once, if the law stays broken."""
    case = shrinker.best.case
    names: dict[int, int] = {}
    script = tuple(
        (op[0], [names.setdefault(token, len(names) + 1) for token in op[1]], *op[2:]) if op[0] == "submit" else op
        for op in case.script
    )
    if script != case.script and not shrinker.spent:
        shrinker.kept(evolve(case, script=script))


# --- configurations --------------------------------------------------------------------------------------------------


def _plainer(shrinker: Shrinker) -> None:
    """Take features away from the configuration one by one, as long as the law stays broken."""
    again = True
    while again and not shrinker.spent:
        again = False
        for config in plainer(shrinker.best.case.scope.config):
            scope = evolve(shrinker.best.case.scope, config=config)
            again = shrinker.tried(evolve(shrinker.best.case, scope=scope)) or again
            if again:
                break


def plainer(config: Config) -> Iterator[Config]:
    """Yield configurations with one feature less that an engine could have; each has its sizes resolved anew."""
    for changed in _changes(config):
        try:
            yield scope_parts.resolved(_sized(changed))
        except (ConfigError, ValueError):
            continue


def _changes(config: Config) -> Iterator[Config]:
    change = msgspec.structs.replace
    scheduler, host = config.scheduler, config.host
    for at in range(len(config.groups) - 1, -1, -1):
        if len(config.groups) > 1:
            yield change(config, groups=[*config.groups[:at], *config.groups[at + 1 :]])
    if host is not None:
        yield change(config, host=None)
        if host.events:
            yield change(config, host=change(host, events=False))
        if host.workers > 1:
            yield change(config, host=change(host, workers=1))
    if len(config.connectors or ()) > 0:
        for at in range(len(config.connectors or ())):
            rest = [one for number, one in enumerate(config.connectors or ()) if number != at]
            yield change(config, connectors=rest or None)
    if config.num_draft_tokens:
        yield _without_drafts(config)
        if config.use_eagle:
            yield change(config, use_eagle=False, lookahead=0)
    if config.dcp_world_size > 1:
        yield change(config, dcp_world_size=1)
        if config.dcp_world_size > 2:
            yield change(config, dcp_world_size=2)
    if config.retention_interval not in (None, 0):
        yield change(config, retention_interval=0)
    if scheduler is not None:
        for name, plain in (
            ("policy", "fcfs"),
            ("runner", "v2"),
            ("long_prefill_token_threshold", 0),
            ("reserve_full_sequence", False),
            ("asynchronous", False),
        ):
            if getattr(scheduler, name) != plain:
                yield change(config, scheduler=change(scheduler, **{name: plain}))
        if scheduler.concurrent_batches != 1:  # nothing is planned ahead, so on no placeholders either
            yield change(config, scheduler=change(scheduler, concurrent_batches=1, asynchronous=False))


def _without_drafts(config: Config) -> Config:
    change = msgspec.structs.replace
    groups: Sequence[GroupConfig] = [
        change(group, num_speculative_blocks=0) if group.num_speculative_blocks else group for group in config.groups
    ]
    return change(config, groups=list(groups), use_eagle=False, num_draft_tokens=0, lookahead=0)


def _sized(config: Config) -> Config:
    """Return the configuration with the sizes that its groups give; the hash block stays if it still divides them."""
    sizes = scope_parts.effective(config.groups, config.dcp_world_size)
    unit = config.hash_block_size
    if len(sizes) == 1 or any(size % unit for size in sizes):
        unit = math.gcd(*sizes)
    return msgspec.structs.replace(config, group_block_sizes=sizes, scheduler_block_size=math.lcm(*sizes), hash_block_size=unit)


def described(scope: Scope) -> str:
    """Return the configuration of a scope in a line, as pages show it."""
    config = scope.config
    groups = " + ".join(
        f"{group.kind} {group.block_size}"
        + (f" window {group.window}" if group.window is not None else "")
        + (f" +{group.num_speculative_blocks}" if group.num_speculative_blocks else "")
        + (" (drafter's)" if group.is_eagle_group else "")
        for group in config.groups
    )
    parts = [groups, f"N={config.dcp_world_size}", f"H={config.hash_block_size}", f"S={config.scheduler_block_size}"]
    parts.append(f"{config.num_device_blocks - 1} blocks")
    if config.host is not None:
        parts.append(f"{config.host.mode} host of {config.host.num_blocks - 1} blocks")
    parts += [f"connector (divergent={one.divergent}, tokens={one.tokens})" for one in config.connectors or ()]
    return ", ".join(parts)
