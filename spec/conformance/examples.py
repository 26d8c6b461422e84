"""Counterexamples of an implementation: the actions, what the model answers to them, and what the implementation showed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from kvproof.core.actions import Action
from kvproof.spec import counterexample as examples
from kvproof.spec.conformance.adapter import Observation, State
from kvproof.spec.conformance.hidden import is_hidden
from kvproof.spec.conformance.play import Point, Run
from kvproof.spec.conformance.search import Broken
from kvproof.spec.counterexample import Counterexample, Implementation, Shown
from kvproof.spec.judge import Violation
from kvproof.spec.laws.base import Evidence
from kvproof.spec.report import lines

ENGINE = "conformance"


def build(
    broken: Broken, actions: Sequence[Action], violation: Violation, run: Run | None, adapter: str, seed: int
) -> Counterexample:
    """Make a counterexample; the actions are performed once more on a run that begins, for what is shown after each.

    Without a run (the implementation does not start any more) nothing is known of that.
    """
    points = []
    for action in actions if run is not None else ():
        assert run is not None, "there is no action without one"
        run.act(action)
        points.append(run.point)
    said = tuple(shown(points)) if run is not None else (Shown("not known"),) * len(actions)
    evidence = Evidence(
        str(visible(violation.evidence.message)),
        (*((name, visible(value)) for name, value in violation.evidence.values), *registered(points, run, violation.evidence)),
        violation.evidence.bendable,
    )
    return examples.build(
        broken.config,
        actions,
        attrs.evolve(violation, evidence=evidence),
        broken.law.sentence,
        legal=broken.legal,
        engine=ENGINE,
        seed=seed,
        scope=broken.scope.name,
        implementation=Implementation(adapter, said),
    )


def registered(points: Sequence[Point], run: Run | None, evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Yield which action made the key that the evidence is about, if keys are shown: the law may have been judged later."""
    values = dict(evidence.values)
    block, boundary = values.get("block"), values.get("boundary")
    shadow = None if run is None else run.runs.shadow
    if shadow is None or type(block) is not int or type(boundary) is not int:
        return
    name = shadow.reader.device.outward(block)
    was, since = False, ""
    for at, point in enumerate(points):
        keys = None if point.shown is None else point.shown.state.device.keys
        there = any((key.block, key.boundary) == (name, boundary) for key in keys or ())
        if there and not was and point.moment is not None:
            since = f"action {at}, {lines.action_text(point.moment.action)}"
        was = there
    if since:
        yield "registered_at", since


def shown(points: Sequence[Point]) -> Iterator[Shown]:
    """Yield what was shown after each action; of the state what changed since the action before."""
    last: dict[str, Any] = {}
    for point in points:
        if point.shown is None:
            yield Shown(point.dead or "not performed")
            continue
        now = dict(state_parts(point.shown.state))
        changed = [(name, value) for name, value in now.items() if name not in last or last[name] != value]
        gone = [(name, None) for name in last if name not in now]
        last = now
        yield Shown(point.shown.refusal, tuple(answer_parts(point.shown)), (*changed, *gone))


def answer_parts(observation: Observation) -> Iterator[tuple[str, Any]]:
    """Yield the fields of an answer as JSON knows them."""
    for name, value in observation.result.items():
        yield name, examples.plain(visible(value))


def state_parts(state: State) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a state that are shown, with names such as ``device.free`` or ``requests.0.tables``."""
    yield from _parts("", state)


def _parts(name: str, value: object) -> Iterator[tuple[str, Any]]:
    kind: type[Any] = type(value)
    if attrs.has(kind):
        for part in attrs.fields(kind):
            inner = getattr(value, part.name)
            if inner is not None:
                yield from _parts(f"{name}.{part.name}" if name else part.name, inner)
    elif isinstance(value, Mapping) and name in ("requests", "rows"):
        for key, inner in value.items():
            yield from _parts(f"{name}.{key}", inner)
    else:
        yield name, examples.plain(visible(value))


def visible(value: object) -> Any:
    """Return a value with what is hidden in it as words, and values of other classes by their fields that are set."""
    if is_hidden(value):
        return "not shown"
    if isinstance(value, Mapping):
        return {visible(key): visible(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return tuple(visible(inner) for inner in value)
    if isinstance(value, set | frozenset):
        return frozenset(visible(inner) for inner in value)
    kind: type[Any] = type(value)
    if attrs.has(kind):
        fields = [(part.name, part.default, getattr(value, part.name)) for part in attrs.fields(kind)]
        return {name: visible(inner) for name, default, inner in fields if is_hidden(inner) or inner != default}
    return value
