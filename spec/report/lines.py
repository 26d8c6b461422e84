"""The words that the terminal and the Markdown form of a counterexample share."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import attrs
from attrs import frozen

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import SOUND, Group, Offload, Profile
from kvproof.core.records import NONE
from kvproof.spec import counterexample as examples
from kvproof.spec import faults
from kvproof.spec import laws as all_laws
from kvproof.spec.counterexample import Counterexample, Outcome, Settings, Shown
from kvproof.spec.faults import Fault
from kvproof.spec.judge import Violation
from kvproof.spec.report import legend

MAX_LINES = 26
HEAD = 6

FOLDED = (act.Drain, act.BuildMetadata, act.Dispatch, act.Execute)


@frozen(slots=True)
class Line:
    """One line of the story: the numbers of its actions, what was done, what was answered by who broke the law.

    ``model`` is what the model answers to the same actions, where that was an implementation.
    """

    number: str
    action: str
    answer: str
    model: str = ""


def action_text(action: Action) -> str:
    """Return an action as it would be written in Python, defaults left out."""
    parts = []
    for at, field in enumerate(attrs.fields(type(action))):
        value = getattr(action, field.name)
        if value != field.default:
            parts.append(f"{value!r}" if at == 0 else f"{field.name}={value!r}")
    return f"{type(action).__name__}({', '.join(parts)})"


def cut(text: str, longest: int) -> str:
    """Return a text that is no longer than that."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def answer_text(outcome: Outcome) -> str:
    """Return what the model answered: the fields that the action set, or the refusal."""
    if outcome.record is None:
        return f"refused ({outcome.code}): {outcome.message}"
    fields = examples.changed_fields(outcome.record)
    return ", ".join(f"{name} {_short(value)}" for name, value in fields.items() if name != "action")


def shown_text(shown: Shown) -> str:
    """Return what an implementation showed: its refusal or what is set in its answer, and the tables that changed."""
    if shown.refusal is not None:
        return f"refused: {shown.refusal}"
    tables = [(name, value) for name, value in shown.state if name.startswith("requests.") and name.endswith(".tables")]
    answer = [(name, value) for name, value in shown.answer if name == "admitted" or (value and value != NONE)]
    said = ((name, _announced(value) if name == "events" else value) for name, value in [*answer, *tables])
    return ", ".join(f"{name} {_short(value)}" for name, value in said)


def _announced(events: object) -> object:
    """Return announcements as (group, boundary), what became of the key first; anything else as it is."""
    if not isinstance(events, tuple):
        return events
    try:
        fields = [dict(event) for event in events]
        return [_Said(f"{event['kind']}({event.get('group', '')},{event.get('boundary', '')})") for event in fields]
    except (TypeError, ValueError, KeyError):
        return events


def answers(example: Counterexample) -> list[str]:
    """Return what was answered to each action: by the implementation if one broke the law, else by the model."""
    if example.implementation is not None:
        said = [shown_text(shown) for shown in example.implementation.shown]
        return [", ".join(filter(None, parts)) for parts in zip(said, legend.changes(example), strict=True)]
    return [answer_text(outcome) for outcome in example.outcomes]


def _short(value: object) -> str:
    if isinstance(value, list):
        value = [_event_text(item) if isinstance(item, dict) else item for item in value]
    text = repr(value).replace(" ", "") if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


@frozen(slots=True)
class _Said:
    """Words that stand in a list without quotation marks."""

    text: str

    def __repr__(self) -> str:
        return self.text


def _event_text(event: dict[str, object]) -> _Said:
    """Return what became of which key, as (group, node)."""
    key = f"({event['group']},{event['node']})" if "node" in event else ""
    return _Said(f"{event['kind']}{key}")


def evidence(example: Counterexample) -> list[str]:
    """Return the values of the evidence, one a line, with whose they are and what they mean where that is not plain."""
    found = [f"{name} = {value}" + (f" ({owner})" if owner else "") for name, value, owner in legend.values(example)]
    return found + [f"({meaning})" for meaning in legend.meanings(example)]


def story(example: Counterexample) -> list[Line]:
    """Return the actions with their answers: the closing of a step folded into one line, a long middle left out."""
    return [line for line, _ in told(example)]


def told(example: Counterexample, most: int = MAX_LINES) -> list[tuple[Line, bool]]:
    """Return the lines of the story, each with whether the law breaks there: that one is never left out."""
    return [(line, example.position in actions) for line, actions in windowed(example, most)]


def windowed(
    example: Counterexample, most: int = MAX_LINES, elsewhere: str = "the JSON form has every action"
) -> list[tuple[Line, range]]:
    """Return at most so many lines with their actions: the first ones, then those up to where the law breaks."""
    lines = list(whole(example))
    if len(lines) <= most:
        return lines
    broken = next((at for at, (_, actions) in enumerate(lines) if example.position in actions), len(lines) - 1)
    # The lines behind the head end with the one that breaks the law, if it lies further ahead than the last ones reach.
    head = min(HEAD, most // 2)
    last = len(lines) if broken >= len(lines) - most + head + 1 or broken < head else broken + 1
    rest = most - head - 1 - (last < len(lines))
    first = max(head, last - rest)
    kept = [*lines[:head], *([_left_out(first - head, elsewhere)] if first > head else []), *lines[first:last]]
    return [*kept, _left_out(len(lines) - last, elsewhere)] if last < len(lines) else kept


def _left_out(count: int, elsewhere: str) -> tuple[Line, range]:
    lines = "1 line" if count == 1 else f"{count} lines"
    return Line("...", f"{lines} left out; {elsewhere}", ""), range(0)


def whole(example: Counterexample) -> Iterator[tuple[Line, range]]:
    """Yield every line with the actions that it tells, none for a remark: the closing of a step is one line."""
    pairs = list(zip(example.actions, answers(example), strict=True))
    model = ["" if example.implementation is None else answer_text(outcome) for outcome in example.outcomes]
    at, lasso = 0, examples.lasso_of(example)
    cycle = lasso.start if lasso else None
    while at < len(pairs):
        if at == cycle:
            yield Line("", "from here on in a cycle, which leads back to this world", ""), range(0)
        stop = at
        # The action that breaks the law keeps a line of its own.
        while stop < len(pairs) and stop != example.position and isinstance(pairs[stop][0], FOLDED):
            stop += 1
            if stop == cycle:
                break
        if stop - at < 2:
            action, answer = pairs[at]
            yield Line(str(at), action_text(action), answer, model[at]), range(at, at + 1)
            at += 1
            continue
        names = [getattr(action, "part", type(action).__name__) for action, _ in pairs[at:stop]]
        said = [(name, answer) for name, (_, answer) in zip(names, pairs[at:stop], strict=True) if answer]
        # Of an implementation it matters which action it was: of the model the fields of the answer tell.
        words = [answer if example.implementation is None else f"{name}: {answer}" for name, answer in said]
        of_model = [f"{name}: {answer}" for name, answer in zip(names, model[at:stop], strict=True) if answer]
        yield Line(f"{at}-{stop - 1}", ", ".join(names), "; ".join(words), "; ".join(of_model)), range(at, stop)
        at = stop


def place(example: Counterexample) -> str:
    """Return where the law broke."""
    if example.position >= 0:
        return f"action {example.position}, {action_text(example.actions[example.position])}"
    law = next((known for known in all_laws.ALL if known.id == example.law), None)
    if of_configuration(example):
        return "the configuration, before any action"
    if law is not None and law.check_end is not None:
        return "the world behind the last action, carried on by what an engine does by itself"
    return "the run as a whole"


def of_configuration(example: Counterexample) -> bool:
    """Tell whether the configuration alone breaks the law: there is no action, or its law looks at nothing else."""
    law = next((known for known in all_laws.ALL if known.id == example.law), None)
    alone = law is not None and law.check_config is not None and law.check_run is None and law.check_end is None
    return not example.actions or (example.position < 0 and alone)


def where(violation: Violation) -> str:
    """Return where a replayed violation lies."""
    return f"at action {violation.position}" if violation.position >= 0 else "without regard to one action"


def replaced(fault: Fault) -> list[str]:
    """Return what a fault replaces: functions with their modules, or a profile field and its value."""
    if fault.profile is not None:
        return [f"profile {fault.profile[0]} = {fault.profile[1]}"]
    return [f"{module if isinstance(module, str) else module.__name__}.{name}" for module, name, _ in fault.patches]


def short(place: str) -> str:
    """Return a place that a fault replaces without the package that most of them share."""
    return place.removeprefix("kvproof.core.")


def fault_text(name: str) -> str:
    """Return a planted fault with what it does wrong and what it replaces; of an unknown one only the id.

    Those of the tensor layer, ``D-``, are not known here: nothing of spec imports it.
    """
    if name.startswith("D-"):
        return f"{name}, of the tensor layer (kvproof gpu --fault list)"
    try:
        fault = faults.by_id(name)
    except faults.FaultError:
        return f"{name} (not known to this kvproof)"
    return f"{name}: {fault.summary} (replaces {', '.join(short(place) for place in replaced(fault))})"


def profile_text(profile: Profile) -> str:
    """Return a profile's name and the fields in which it departs from `sound`."""
    changed = [
        f"{field.name} = {getattr(profile, field.name)}"
        for field in attrs.fields(Profile)
        if field.name != "name" and getattr(profile, field.name) != getattr(SOUND, field.name)
    ]
    return profile.name + (f" with {', '.join(changed)}" if changed else "")


def sizes_text(example: Counterexample) -> str:
    """Return ranks, the derived sizes in tokens, and the other settings that differ from the usual."""
    settings, geometry = example.settings, example.geometry
    parts = [f"N = {settings.dcp_size}", f"I = {settings.interleave}"]
    if geometry is not None:
        parts += [f"S = {geometry.scheduler_block_size}", f"H = {geometry.hash_block_size}", f"A = {geometry.alignment}"]
        parts.append("hits may end inside a block" if geometry.fine_grained else "hits end on scheduler blocks")
    parts += [f"{settings.num_blocks} blocks with the null block", f"at most {settings.max_model_len} tokens"]
    if settings.retention is not None:
        parts.append(f"retention {settings.retention}")
    if settings.append_expansion > 1:
        parts.append(f"{settings.append_expansion} kernel blocks per block")
    if settings.connectors:
        parts.append(f"connectors that offer divergent hits: {', '.join(map(str, settings.connectors))}")
    parts += running_text(settings)
    if settings.offload is not None:
        parts.append(host_text(settings.offload))
    return ", ".join(parts)


def running_text(settings: Settings) -> list[str]:
    """Return what else differs from the usual: drafts, checkpoints, steps in flight, events."""
    said = (
        (settings.use_eagle, "EAGLE"),
        (settings.num_draft_tokens, f"up to {settings.num_draft_tokens} drafts"),
        (settings.shared_prefix_checkpoint, "snapshots at junctions"),
        (settings.checkpoint_alignment, f"internal checkpoints at multiples of {settings.checkpoint_alignment}"),
        (settings.max_steps_in_flight > 1, f"{settings.max_steps_in_flight} steps in flight"),
        (settings.defer_block_free, "deferred frees"),
        (settings.async_outputs, "placeholders"),
        (settings.long_prefill, f"prefill chunks of at most {settings.long_prefill} tokens"),
        (settings.events, "events"),
    )
    return [text for said_so, text in said if said_so]


def host_text(offload: Offload) -> str:
    """Return the host tier's settings, as far as they differ from the usual."""
    parts = [f"{offload.mode} host tier of {offload.num_blocks} blocks"]
    if offload.workers > 1:
        parts.append(f"{offload.workers} workers")
    if offload.flush != "first":
        parts.append("waits for transfers before the forward")
    if offload.store_submission != "same_step":
        parts.append("stores begin in the next step")
    if offload.hold_loads:
        parts.append("loads wait for steps in flight")
    if offload.resumed != "first":
        parts.append("resumed requests come last")
    return " with ".join((parts[0], " and ".join(parts[1:]))) if parts[1:] else parts[0]


def groups(example: Counterexample) -> list[tuple[str, str, str, str, str]]:
    """Return one row per group: number, kind, tokens of a block on one rank, E in tokens, row entries."""
    found = []
    for at, group in enumerate(example.settings.groups):
        kind = ", ".join((group.kind, *_kind_words(group)))
        size = str(example.geometry.sizes[at]) if example.geometry else ""
        row = str(example.geometry.row_capacity[at]) if example.geometry else ""
        found.append((str(at), kind, str(group.block_size), size, row))
    return found


def _kind_words(group: Group) -> list[str]:
    """Return what else is said of a group beside its kind."""
    said = (
        (
            group.window is not None,
            f"window of {group.window} tokens" if group.kind == "sliding_window" else f"chunks of {group.window}",
        ),
        (group.speculative_blocks > 0, f"{group.speculative_blocks} speculative blocks"),
        (group.draft, "draft model"),
        (not group.sharded, "replicated"),
    )
    return [text for so, text in said if so]


def origin(example: Counterexample) -> str:
    """Return who found it: engine, seed, scope, versions; and who broke the law, if that was not the model."""
    who = f"broken by {example.implementation.adapter}, " if example.implementation is not None else ""
    return (
        f"{who}found by {example.engine}, seed {example.seed}, scope {example.scope}, "
        f"kvproof {example.kvproof}, Python {example.python}"
    )


def reproduce(example: Counterexample, file: str | None = None) -> str:
    """Return the command that shows the violation again, from the file if there is one; that of an implementation is a call."""
    broke = example.implementation
    if example.engine == examples.TENSORS:
        return f"kvproof gpu --replay {shlex.quote(file)}" if file else examples.command(example)
    if broke is not None:
        asked = [("walks", broke.walks), ("steps", broke.steps), ("policies", list(broke.policies))]
        more = "".join(f", {name}={value!r}" for name, value in asked if value)
        return f"check_all_laws(adapter, laws={[example.law]}, scopes={[example.scope]}, seed={example.seed}{more})"
    return f"kvproof report {shlex.quote(file)} --replay" if file else examples.command(example)
