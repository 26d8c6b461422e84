"""The counterexample: everything that is needed to see a law broken again, as one value with a versioned JSON form.

``Counterexample`` holds a configuration, a profile, actions and what the model answered to each of them. ``dumps`` and
``loads`` are exact inverses; loading is strict and every complaint names the place. ``replay`` runs the actions again.
"""

from __future__ import annotations

import json
import platform
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import attrs
import msgspec
from attrs import evolve, frozen

from kvproof.core import actions as act
from kvproof.core import config as configs
from kvproof.core.actions import Action
from kvproof.core.config import Config, Group, Offload, Profile
from kvproof.core.errors import ConfigError
from kvproof.core.records import Event, Record
from kvproof.core.world import World, new_world
from kvproof.spec import distribution
from kvproof.spec import judge as judges
from kvproof.spec.engines import rules
from kvproof.spec.exits import UserError
from kvproof.spec.exploring import liveness
from kvproof.spec.judge import Judge, Violation
from kvproof.spec.laws.base import Evidence, Law, Moment

FORMAT = "kvproof-counterexample"
VERSION = 1
GZIP = b"\x1f\x8b"
LARGEST = 1 << 16
EXPLORER, SAMPLER = "explorer", "random runs of the explorer"
"""The engines of ``kvproof explore``."""
TENSORS = "tensors"
"""The engine of ``kvproof gpu``: model and tensors side by side."""
T = TypeVar("T")


class CounterexampleError(UserError):
    """A counterexample file cannot be used, or what it says cannot be run."""


@frozen(slots=True)
class Settings:
    """The arguments of ``configure`` (sizes in tokens, ``num_blocks`` with the null block)."""

    groups: tuple[Group, ...]
    dcp_size: int
    interleave: int
    hash_block_size: int | None
    max_model_len: int
    num_blocks: int
    retention: int | None
    caching: bool
    max_running: int
    max_chunk: int
    clip_block_size: int
    append_expansion: int
    connectors: tuple[bool, ...]
    use_eagle: bool = False
    num_draft_tokens: int = 0
    shared_prefix_checkpoint: bool = False
    checkpoint_alignment: int | None = None
    defer_block_free: bool = False
    max_steps_in_flight: int = 1
    async_outputs: bool = False
    events: bool = False
    long_prefill: int | None = None
    offload: Offload | None = None

    def config(self, profile: Profile) -> Config:
        """Resolve the configuration. Raises ConfigError."""
        values = {name: getattr(self, name) for name in _SETTINGS if name != "groups"}
        return configs.configure(self.groups, profile=profile, **values)


_SETTINGS = tuple(field.name for field in attrs.fields(Settings))


@frozen(slots=True)
class Geometry:
    """The derived sizes, for the reader: E in tokens and row entries per group, S, H and the hit alignment A."""

    sizes: tuple[int, ...]
    row_capacity: tuple[int, ...]
    scheduler_block_size: int
    hash_block_size: int
    alignment: int
    fine_grained: bool


@frozen(slots=True)
class Outcome:
    """What the model answered to one action: a record, or the code and message of a refusal."""

    record: Record | None = None
    code: str = ""
    message: str = ""


@frozen(slots=True)
class Shown:
    """What an implementation showed after one action: its refusal or its answer, and what changed of its state, by names."""

    refusal: str | None
    answer: tuple[tuple[str, Any], ...] = ()
    state: tuple[tuple[str, Any], ...] = ()


@frozen(slots=True)
class Implementation:
    """Who broke the law, if not the model: the name of an adapter, and what it showed after each action.

    ``walks``, ``steps`` and ``policies`` are what the search was asked for beyond the usual; None and empty: nothing.
    """

    adapter: str
    shown: tuple[Shown, ...]
    walks: int | None = None
    steps: int | None = None
    policies: tuple[str, ...] = ()


@frozen(slots=True)
class Counterexample:
    """A broken law and how to see it.

    ``position`` counts actions from 0; -1: the configuration or the whole run breaks the law. ``legal`` says whether
    the last action was proposed as legal (the rules of generation need it). ``fault`` is the planted fault, if any.
    ``quick`` says that the check ran its quick matrix. ``implementation`` is set if an adapter broke the law: outcomes are then
    what the model answers to these actions, and running them again runs the model.
    """

    law: str
    sentence: str
    message: str
    values: tuple[tuple[str, Any], ...]
    settings: Settings
    profile: Profile
    geometry: Geometry | None
    actions: tuple[Action, ...]
    outcomes: tuple[Outcome, ...]
    position: int
    legal: bool
    engine: str
    seed: int
    scope: str
    fault: str
    quick: bool
    kvproof: str
    python: str
    implementation: Implementation | None = None


@frozen(slots=True)
class Replayed:
    """What replaying a counterexample shows: the violation, if it is there again, and differences of the records.

    ``unjudged`` says why a rule of generation was not judged, "" if it was, or the law is no such rule.
    """

    violation: Violation | None
    differences: tuple[str, ...]
    unjudged: str = ""


# --- making one ---------------------------------------------------------------------------------------------------


def settings_of(config: Config) -> Settings:
    """Return the arguments that resolve to a configuration; the match unit is left out where it is the default."""
    values = {name: getattr(config, name) for name in _SETTINGS}
    settings = Settings(**{**values, "hash_block_size": None})
    try:
        if settings.config(config.profile) == config:
            return settings
    except ConfigError:
        pass
    return evolve(settings, hash_block_size=config.hash_block_size)


def geometry_of(config: Config) -> Geometry:
    """Return the derived sizes of a configuration."""
    return Geometry(**{field.name: getattr(config, field.name) for field in attrs.fields(Geometry)})


def outcome_of(moment: Moment) -> Outcome:
    """Return what the model answered."""
    if moment.refusal is not None:
        return Outcome(None, moment.refusal.code, str(moment.refusal))
    return Outcome(moment.record)


def build(
    config: Config,
    actions: Sequence[Action],
    violation: Violation,
    sentence: str,
    *,
    legal: bool,
    engine: str,
    seed: int,
    scope: str,
    fault: str = "",
    quick: bool = False,
    implementation: Implementation | None = None,
) -> Counterexample:
    """Make a counterexample; the actions are run once more for their records (under the fault that is planted now)."""
    world, outcomes = new_world(config), []
    for action in actions:
        moment = judges.attempt(world, action)
        outcomes.append(outcome_of(moment))
        world = moment.after
    return Counterexample(
        law=violation.law,
        sentence=sentence,
        message=violation.evidence.message,
        values=tuple((name, plain(value)) for name, value in violation.evidence.values),
        settings=settings_of(config),
        profile=config.profile,
        geometry=geometry_of(config),
        actions=tuple(actions),
        outcomes=tuple(outcomes),
        position=violation.position,
        legal=legal,
        engine=engine,
        seed=seed,
        scope=scope,
        fault=fault,
        quick=quick,
        kvproof=distribution.version(),
        python=platform.python_version(),
        implementation=implementation,
    )


def plain(value: object) -> Any:
    """Return a value of evidence as JSON knows it, sequences as tuples, anything unknown as text."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, list | tuple):
        return tuple(plain(item) for item in value)
    if isinstance(value, set | frozenset):
        return tuple(sorted((plain(item) for item in value), key=repr))
    if isinstance(value, dict):
        return tuple((plain(key), plain(item)) for key, item in sorted(value.items(), key=repr))
    return str(value)


def fault_of_model(example: Counterexample) -> str:
    """Return the fault that is planted in the model, empty if there is none: those of the tensor layer leave it alone."""
    return "" if example.engine == TENSORS else example.fault


def broken_outside(example: Counterexample) -> bool:
    """Tell whether an implementation or the tensors broke the law: the model alone cannot show that again."""
    return example.engine == TENSORS or example.implementation is not None


def lasso_of(example: Counterexample) -> range | None:
    """Return the actions of the cycle of a lasso (5.13), an empty range for a maximal run; None if it claims to be neither."""
    values = dict(example.values)
    way, count = values.get("way"), len(example.actions)
    if broken_outside(example) or "cycle" not in values or not isinstance(way, int) or not 0 <= way <= count:
        return None
    return range(way, count)


def command(example: Counterexample) -> str:
    """Return the command line that finds this counterexample again."""
    explored = example.engine in (EXPLORER, SAMPLER)
    words = ["kvproof gpu" if example.engine == TENSORS else "kvproof explore" if explored else "kvproof check"]
    if example.fault:
        words.append(f"--fault {shlex.quote(example.fault)}")
    if example.engine == TENSORS:
        words.append(f"--run {shlex.quote(example.scope)} --seed {example.seed}")
        return " ".join(words)
    if explored:
        words += [f"--law {shlex.quote(example.law)}", f"--scope {shlex.quote(example.scope)}"]
        if example.engine == SAMPLER:
            words.append(f"--random 1 --seed {example.seed}")
        return " ".join(words)
    words += [f"--law {shlex.quote(example.law)}", f"--seed {example.seed}", f"--scope {shlex.quote(example.scope)}"]
    if example.quick:
        words.append("--quick")
    return " ".join(words)


# --- JSON ---------------------------------------------------------------------------------------------------------


def dumps(example: Counterexample) -> str:
    """Return the JSON text of a counterexample: the same value gives the same bytes."""
    document: dict[str, Any] = {"format": FORMAT, "version": VERSION}
    for field in attrs.fields(Counterexample):
        document[field.name] = _encode(getattr(example, field.name))
    if example.implementation is None:
        del document["implementation"]
    document["actions"] = [_encode_action(action) for action in example.actions]
    document["outcomes"] = [_encode_outcome(outcome) for outcome in example.outcomes]
    lines = []
    for name, value in document.items():
        if name in ("actions", "outcomes") and value:
            items = ",\n".join(f"    {json.dumps(item, ensure_ascii=False)}" for item in value)
            lines.append(f"  {json.dumps(name)}: [\n{items}\n  ]")
        else:
            lines.append(f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _encode(value: Any) -> Any:
    if attrs.has(type(value)):
        return {field.name: _encode(getattr(value, field.name)) for field in attrs.fields(type(value))}
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    return value


def _encode_action(action: Action) -> dict[str, Any]:
    return {"action": type(action).__name__, **_encode(action)}


def _encode_outcome(outcome: Outcome) -> dict[str, Any]:
    if outcome.record is None:
        return {"refused": outcome.code, "message": outcome.message}
    return changed_fields(outcome.record)


def changed_fields(record: Record) -> dict[str, Any]:
    """Return the fields of a record that its action set; flags inside tuples as 0 and 1, as their type says.

    Each event is given by its own fields that are set.
    """
    return _set_fields(record, "action")


def _set_fields(value: Record | Event, *always: str) -> dict[str, Any]:
    return {
        field.name: _numbers(getattr(value, field.name))
        for field in attrs.fields(type(value))
        if field.name in always or getattr(value, field.name) != field.default
    }


def _numbers(value: Any) -> Any:
    return [_number(item) for item in value] if isinstance(value, tuple) else value


def _number(item: Any) -> Any:
    if isinstance(item, Event):
        return _set_fields(item)
    if isinstance(item, str):
        return item
    return _numbers(item) if isinstance(item, tuple) else int(item)


def loads(text: str | bytes, source: str = "counterexample") -> Counterexample:
    """Read a counterexample. Raises CounterexampleError with the place of the first thing that is wrong."""
    try:
        document = json.loads(text)
        json.dumps(document, ensure_ascii=False).encode()  # a half of a surrogate pair could not be shown
    except (ValueError, RecursionError) as error:
        raise CounterexampleError(f"{source}: is not JSON: {error}") from error
    try:
        return _decode(document, source)
    except RecursionError as error:
        raise CounterexampleError(f"{source}: is nested too deeply: {error}") from error


def _decode(document: object, source: str) -> Counterexample:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise CounterexampleError(f'{source}: is not a counterexample: "format" must be "{FORMAT}"')
    if document.get("version") != VERSION or isinstance(document.get("version"), bool):
        raise CounterexampleError(
            f"{source}: has version {document.get('version')!r}, this kvproof reads version {VERSION}: use a matching one"
        )
    fields = {name: value for name, value in document.items() if name not in ("format", "version")}
    actions = _list(source, fields, "actions")
    outcomes = _list(source, fields, "outcomes")
    kinds = get_type_hints(Counterexample)
    _only(source, "", fields, set(kinds))
    values: dict[str, Any] = {
        "values": _values(source, fields.get("values")),
        "actions": tuple(_decode_action(source, at, item) for at, item in enumerate(actions)),
        "outcomes": tuple(_decode_outcome(source, at, item) for at, item in enumerate(outcomes)),
        "implementation": _decode_implementation(source, fields.get("implementation"), len(actions)),
    }
    for name in kinds:
        if name not in fields and name != "implementation":
            raise CounterexampleError(f"{source}: missing field {name!r}")
        if name not in values:
            values[name] = _convert(source, name, fields[name], kinds[name])
    example = Counterexample(**values)
    if len(example.outcomes) != len(example.actions):
        raise CounterexampleError(
            f"{source}: {len(example.actions)} actions and {len(example.outcomes)} outcomes: one outcome per action"
        )
    for name, pattern in ONE_LINE.items():
        if not re.fullmatch(pattern, getattr(example, name)):
            said = "letters, digits and -" if pattern == ID else "one line that can be printed"
            raise CounterexampleError(f"{source}: {name}: {said} is needed, and not {getattr(example, name)!r}")
    if not -1 <= example.position < len(example.actions):
        raise CounterexampleError(f"{source}: position {example.position} is not one of {len(example.actions)} actions")
    geometry, count = example.geometry, len(example.settings.groups)
    if geometry is not None and {len(geometry.sizes), len(geometry.row_capacity)} != {count}:
        raise CounterexampleError(f"{source}: geometry: sizes and row_capacity need one entry for each of {count} groups")
    return example


ID = r"[A-Za-z0-9-]*"
ONE_LINE: dict[str, str] = {
    "law": ID,
    "fault": ID,
    **dict.fromkeys(("engine", "scope", "kvproof", "python"), r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]*"),
}
"""What names are made of: they stand in commands, headlines and the text of tests."""


def read(path: Path) -> Counterexample:
    """Read a counterexample file. Raises CounterexampleError."""
    try:
        text = path.read_bytes()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise CounterexampleError(f"{path}: cannot be read: {why}; name a counterexample file") from error
    if text.startswith(GZIP) or b'"kv-trace"' in text.partition(b"\n")[0]:
        raise CounterexampleError(f"{path}: is a recording, not a counterexample: use kvproof replay {path}")
    return loads(text, str(path))


def _list(source: str, fields: dict[str, Any], name: str) -> list[Any]:
    value = fields.get(name)
    if not isinstance(value, list):
        raise CounterexampleError(f"{source}: {name}: a list is needed, one entry per action")
    return value


def _values(source: str, value: object) -> tuple[tuple[str, Any], ...]:
    if not isinstance(value, list) or not all(
        isinstance(item, list) and len(item) == 2 and isinstance(item[0], str) for item in value
    ):
        raise CounterexampleError(f"{source}: values: a list of [name, value] is needed")
    return tuple((item[0], plain(item[1])) for item in value)


_ACTIONS = {kind.__name__: kind for kind in act.ACTIONS}


def _decode_action(source: str, at: int, item: object) -> Action:
    where = f"actions[{at}]"
    name = item.get("action") if isinstance(item, dict) else None
    if not isinstance(item, dict) or not isinstance(name, str) or name not in _ACTIONS:
        raise CounterexampleError(f'{source}: {where}: "action" must be one of {", ".join(_ACTIONS)}')
    kind = _ACTIONS[name]
    return _convert(source, where, {key: value for key, value in item.items() if key != "action"}, kind)


def _decode_outcome(source: str, at: int, item: object) -> Outcome:
    where = f"outcomes[{at}]"
    if not isinstance(item, dict):
        raise CounterexampleError(f"{source}: {where}: an object is needed")
    if "refused" in item:
        refused = _convert(source, where, {"code": item["refused"], "message": item.get("message", "")}, Outcome)
        _only(source, where, item, {"refused", "message"})
        return refused
    return Outcome(_convert(source, where, item, Record))


def _decode_implementation(source: str, value: object, count: int) -> Implementation | None:
    if value is None:
        return None
    read = _convert(source, "implementation", value, Implementation)
    if len(read.shown) != count:
        raise CounterexampleError(f"{source}: implementation: {count} actions and {len(read.shown)} shown: one per action")
    shown = tuple(evolve(one, answer=_plain_pairs(one.answer), state=_plain_pairs(one.state)) for one in read.shown)
    return evolve(read, shown=shown)


def _plain_pairs(pairs: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, plain(value)) for name, value in pairs)


def _convert(source: str, where: str, value: object, kind: type[T]) -> T:
    """Build a value of an attrs class, refusing unknown and missing names on every level."""
    try:
        made = msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        raise CounterexampleError(f"{source}: {where + ': ' if where else ''}{error}") from error
    _check_names(source, where, value, made)
    return made


def _check_names(source: str, where: str, value: object, made: object) -> None:
    kind: type[Any] = type(made)
    if isinstance(value, dict) and attrs.has(kind):
        names = {field.name for field in attrs.fields(kind)}
        _only(source, where, value, names)
        for name in value:
            _check_names(source, f"{where}.{name}" if where else name, value[name], getattr(made, name))
    elif isinstance(value, list) and isinstance(made, tuple):
        for at, (item, part) in enumerate(zip(value, made, strict=True)):
            _check_names(source, f"{where}[{at}]", item, part)


def _only(source: str, where: str, value: dict[str, Any], names: set[str]) -> None:
    unknown = sorted(set(value) - names)
    if unknown:
        raise CounterexampleError(f"{source}: {where + ': ' if where else ''}unknown field {unknown[0]!r}")


def check_sizes(settings: Settings) -> None:
    """Refuse sizes that would take all memory to run; the matrix of the checks stays far below."""
    sizes = {name: getattr(settings, name) for name in _SETTINGS if name not in ("groups", "connectors", "offload")}
    if settings.offload is not None:
        sizes["offload.num_blocks"] = settings.offload.num_blocks
    sizes["block_size"] = max((group.block_size for group in settings.groups), default=0)
    for name, size in sizes.items():
        if size is not None and size > LARGEST:
            raise CounterexampleError(f"the configuration is too large to run: {name} is {size}, at most {LARGEST}")


# --- running it again ---------------------------------------------------------------------------------------------


def replay(example: Counterexample, laws: Sequence[Law]) -> Replayed:
    """Run a counterexample again and judge it by its law; the caller plants its fault.

    ``laws`` are all known laws. Raises CounterexampleError if the law is unknown or the configuration is refused.
    """
    chosen = [law for law in laws if law.id == example.law]
    if not chosen and example.law not in rules.SENTENCES:
        raise CounterexampleError(f"no law {example.law!r} in this kvproof ({distribution.version()})")
    check_sizes(example.settings)
    try:
        config = example.settings.config(example.profile)
    except ConfigError as error:
        raise CounterexampleError(f"the configuration is refused: {error}") from error
    judge = Judge(chosen)
    found = judge.configuration(config)
    differences = []
    world: World = new_world(config)
    as_recorded = certain = True
    for position, (action, recorded) in enumerate(zip(example.actions, example.outcomes, strict=True)):
        moment = judges.attempt(world, action)
        here = judge.moment(moment, position)
        # Whether an action is legal is said of the world that the file has: behind other answers it may be another one.
        certain = as_recorded or (moment.refusal is not None and judges.is_internal(moment.refusal))
        if position == len(example.actions) - 1 and certain:
            here += rules.violations(moment, example.legal, here, position)
        outcome = outcome_of(moment)
        as_recorded = as_recorded and (outcome.record, outcome.code) == (recorded.record, recorded.code)
        if outcome != recorded:
            differences.append(f"action {position} ({type(action).__name__}) answers differently than recorded")
        found += here
        world = moment.after
    if not found:
        found += judge.run(config, example.actions)
    if not found and lasso_of(example) is not None:
        told = Violation(example.law, -1, Evidence(example.message, example.values))
        lasso = liveness.shown_again(config, example.actions, told)
        found += [] if lasso is None else [lasso.violation]
    first = _first(example, [violation for violation in found if violation.law == example.law])
    unjudged = ""
    if first is None and not certain and example.law in rules.SENTENCES:
        unjudged = f"whether the last action is legal is known of the file's worlds alone, and {differences[0]}"
    return Replayed(first, tuple(differences), unjudged)


def _first(example: Counterexample, found: Sequence[Violation]) -> Violation | None:
    """Return the violation that comes first, of several at one place that of the file; what a profile permits comes last."""
    kept = judges.refuted(found) or found
    there = [violation for violation in kept if violation.position == kept[0].position]
    told = (example.message, example.values)
    return next((violation for violation in there if evidence_of(violation) == told), next(iter(there), None))


def evidence_of(violation: Violation) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """Return the message and the values of a violation as a counterexample has them."""
    return violation.evidence.message, tuple((name, plain(value)) for name, value in violation.evidence.values)
