"""The laws on what a release derives from a configuration: its sizes, its native connector, and its worker's rows.

Every configuration is generated (``configurations``); the release answers for it through its process (``asking``), and the laws
judge what it says. Of what breaks a law the smallest configuration is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Literal, Protocol

from attrs import define, evolve, field, frozen

from kvproof.core.actions import AppendRows
from kvproof.core.config import Config
from kvproof.core.errors import ConfigError, RowCapacityExceeded
from kvproof.core.records import Record
from kvproof.core.world import World, new_world
from kvproof.spec.conformance.hidden import NotShown
from kvproof.spec.laws import capability
from kvproof.spec.laws.base import Evidence, Findings, Law, Moment
from kvproof.spec.vllm import configurations
from kvproof.spec.vllm.asking import NotThere, Subject
from kvproof.spec.vllm.configurations import Arguments
from kvproof.spec.vllm.headers import header
from kvproof.spec.vllm.process import ReleaseLacks, ReleaseRaised

Verdict = Literal["holds", "refuted", "undetermined"]
Kind = Literal["declared", "bent", "broken"]
"""What a violation counts as; of several at one moment the last of these does."""

LEFT_OUT = ("LV-9",)
"""Of these the part on configurations asks how a load is cut into blocks; that is judged in runs."""

STRICT_LAWS = ("DS-7",)
"""Judged only where everything can be asked: an answer of the model beside one of the release would mean nothing."""

ROW_LAWS = ("TB-11",)
GRID_LAWS = ("DS-2", "DS-3", "DS-4", "DS-10")
"""Judged on small grids around a configuration: once per set of block sizes and ranks."""

CONNECTOR_LAW = "CA-2"
QUICK, FULL = 25, 400
"""Random configurations beside the scopes and deployments."""

APPENDS = 12
"""Appends to the rows of one configuration."""


class Release(Protocol):
    """A process that answers for a release (``process.ReleaseProcess``)."""

    def geometry(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the parts of a configuration's geometry that ``parts`` names."""
        ...

    def rows(self, config: Mapping[str, Any], appends: Sequence[Any]) -> list[Mapping[str, Any]]:
        """Return per append what the rows hold afterwards, or its error."""
        ...


class Explain(Protocol):
    """What knows why a violation need not count."""

    def __call__(self, law: Law, config: Config, evidence: Evidence) -> Kind:
        """Tell whether the baseline declares it, a field of the profile explains it, or nothing does."""
        ...


def by_profile(law: Law, config: Config, evidence: Evidence) -> Kind:
    """Tell whether a field of the profile explains a violation; no baseline is asked."""
    bends = any(getattr(config.profile, name) == value for name, value in law.bent_by)
    return "bent" if bends and evidence.bendable else "broken"


@frozen(slots=True)
class Found:
    """A law broken under a configuration: the smallest one found, the evidence, and for rows the appends up to it."""

    arguments: Arguments
    evidence: Evidence
    actions: tuple[AppendRows, ...] = ()


@define(slots=True)
class Judged:
    """One law on one release. ``judged``: configurations (rows: appends) under which its premise was true.

    ``broken`` counts those that break it, ``bent`` those that only a field of the profile explains, ``declared`` those that an
    entry of the baseline names, ``hidden`` those where a part of what it asks for cannot be asked. ``moot``: questions that
    cannot come up in the release.
    """

    law: str
    subject: str
    judged: int = 0
    broken: int = 0
    bent: int = 0
    declared: int = 0
    hidden: Counter[str] = field(factory=Counter)
    moot: Counter[str] = field(factory=Counter)
    found: Found | None = None

    @property
    def verdict(self) -> Verdict:
        """Refuted if something breaks it; undetermined if something could not be asked, or if it was never judged."""
        if self.broken:
            return "refuted"
        return "undetermined" if self.hidden or not self.judged else "holds"

    def count(self, kinds: Sequence[Kind]) -> None:
        """Count something judged with the kinds of all its violations."""
        self.judged += 1
        if "broken" in kinds:
            self.broken += 1
        elif "bent" in kinds:
            self.bent += 1
        elif kinds:
            self.declared += 1

    @property
    def why(self) -> str:
        """Return why nothing can be said, or nothing."""
        if self.verdict != "undetermined":
            return ""
        if not self.hidden:
            return "its premise was never true"
        what, count = max(sorted(self.hidden.items()), key=lambda pair: pair[1])
        more = f" and {len(self.hidden) - 1} more reasons" if len(self.hidden) > 1 else ""
        return f"{what} ({count} times){more}"


@define(slots=True)
class Result:
    """Everything found about one release. ``configurations`` were judged; ``skipped`` says why others were not."""

    laws: dict[str, Judged] = field(factory=dict)
    configurations: int = 0
    skipped: Counter[str] = field(factory=Counter)


def judge(
    release: Release, laws: Sequence[Law], seed: int, *, quick: bool = False, explain: Explain = by_profile
) -> list[Judged]:
    """Judge a release by those of the laws that concern its geometry and its rows. Raises ReleaseFailure."""
    asked = configurations.everything(seed, QUICK if quick else FULL, quick=quick)
    return list(examined(release, laws, asked, seed, explain).laws.values())


def examined(
    release: Release, laws: Sequence[Law], asked: Iterable[Arguments], seed: int, explain: Explain = by_profile
) -> Result:
    """Judge a release under given configurations; the seed draws the appends to the rows. Raises ReleaseFailure."""
    subject, result, grids = Subject(release), Result(), set[object]()
    wanted = [law for law in laws if law.check_config is not None or law.id in (*ROW_LAWS, CONNECTOR_LAW)]
    wanted = [law for law in wanted if law.id not in LEFT_OUT]
    for law in wanted:
        result.laws[law.id] = Judged(law.id, "rows" if law.id in ROW_LAWS else "geometry")
    for arguments in asked:
        try:
            config = arguments.resolve(subject.with_rows)
        except (ConfigError, NotShown) as error:
            result.skipped[_reason(str(error))] += 1
            continue
        result.configurations += 1
        grid = frozenset(min(group.block_size, 16) for group in config.groups), min(config.dcp_size, 8)
        for law in wanted:
            if law.id in GRID_LAWS and grid in grids:
                continue
            if law.id in ROW_LAWS:
                _judge_rows(release, law, arguments, config, result.laws[law.id], seed, explain)
            else:
                _judge_config(subject, law, arguments, config, result.laws[law.id], explain)
        grids.add(grid)
    for law in wanted:
        _minimise(release, subject, law, result.laws[law.id], seed, explain)
    return result


def _reason(text: str) -> str:
    """Return the first sentence of a refusal, so that like ones are counted together."""
    return text.partition("\n")[0][:120]


# --- configurations -----------------------------------------------------------------------------------------------


def findings(subject: Subject, law: Law, config: Config, hidden: Counter[str]) -> Findings:
    """Return what a law finds in a configuration; ``hidden`` counts what it could not ask.

    Where something is hidden it is judged once more with the model in that place: evidence found then is the release's.
    """
    try:
        with subject.answering(config, strict=True):
            return _check(subject, law, config)
    except NotThere as error:
        subject.moot[_reason(error.what)] += 1
        return None
    except NotShown as error:
        hidden[_reason(error.what)] += 1
    if law.id in STRICT_LAWS:
        return None
    try:
        with subject.answering(config, strict=False):
            return _check(subject, law, config) or None
    except NotShown:
        return None


def _check(subject: Subject, law: Law, config: Config) -> Findings:
    if law.id == CONNECTOR_LAW:
        return _together(subject, config)
    assert law.check_config is not None
    return law.check_config(config)


def _together(subject: Subject, config: Config) -> Findings:
    """CA-2 on a configuration: what the release takes its connectors for against what each of them can."""
    found = subject.ask(header(config, None), "divergent")
    if "together" not in found:
        raise NotThere(str(found.get("lacks") or found.get("refused")))
    expected = capability.can_diverge(config)
    if found["together"] == expected:
        return () if config.children else None
    return [
        Evidence.of(
            "what the connectors can do together is not what every one of them can do",
            connectors=config.children,
            expected=expected,
            diverged=found["together"],
        )
    ]


def _judge_config(subject: Subject, law: Law, arguments: Arguments, config: Config, judged: Judged, explain: Explain) -> None:
    found = findings(subject, law, config, judged.hidden)
    judged.moot += subject.moot
    subject.moot.clear()
    if found is None:
        return
    kinds: list[tuple[Kind, Evidence]] = [(explain(law, config, evidence), evidence) for evidence in found]
    judged.count([kind for kind, _ in kinds])
    broken = [evidence for kind, evidence in kinds if kind == "broken"]
    best = judged.found
    if broken and (best is None or arguments.size < best.arguments.size):
        judged.found = Found(arguments, broken[0])


def _minimise(release: Release, subject: Subject, law: Law, judged: Judged, seed: int, explain: Explain) -> None:
    if judged.found is None:
        return
    last = judged.found

    def fails(arguments: Arguments) -> bool:
        nonlocal last
        trial = Judged(law.id, judged.subject)
        try:
            config = arguments.resolve(subject.with_rows)
        except (ConfigError, NotShown):
            return False
        if law.id in ROW_LAWS:
            _judge_rows(release, law, arguments, config, trial, seed, explain)
        else:
            _judge_config(subject, law, arguments, config, trial, explain)
        if trial.found is not None:
            last = trial.found
        return trial.found is not None

    if law.id in ROW_LAWS:
        configurations.minimised(judged.found.arguments, fails, size=configurations.row_size)
        judged.found = _fewer_appends(release, subject, law, last, explain)
    else:
        configurations.minimised(judged.found.arguments, fails)
        judged.found = last


# --- rows ---------------------------------------------------------------------------------------------------------


def appends(config: Config, seed: int) -> tuple[AppendRows, ...]:
    """Return random appends of a configuration, the same for the same seed: rows fill up, and some go past their end."""
    random = Random(f"{seed}/{config.groups}/{config.row_capacity}/{config.max_running}")
    held = [[0] * _rows_of(config) for _ in config.groups]
    found = []
    for _ in range(APPENDS):
        row = random.randrange(_rows_of(config))
        ids = []
        for group, capacity in enumerate(config.row_capacity):
            room = max(capacity // config.append_expansion - held[group][row], 0)
            count = random.choice((0, 1, 2, room, room, random.randint(0, room), room + 1 if random.random() < 0.3 else 1))
            held[group][row] += count
            ids.append(tuple(random.randrange(1, config.num_blocks) for _ in range(count)))
        found.append(AppendRows(row, tuple(ids)))
    return tuple(found)


def _judge_rows(
    release: Release, law: Law, arguments: Arguments, config: Config, judged: Judged, seed: int, explain: Explain
) -> None:
    try:
        actions = appends(config, seed)
    except NotShown as error:
        judged.hidden[_reason(error.what)] += 1
        return
    try:
        every = _of_appends(release, law, config, actions)
    except ReleaseLacks as error:
        judged.moot[_reason(error.lacking)] += 1
        return
    except ReleaseRaised as error:
        judged.hidden[_reason(error.text)] += 1
        return
    for position, found in enumerate(every):
        if found is None:
            continue
        kinds: list[tuple[Kind, Evidence]] = [(explain(law, config, evidence), evidence) for evidence in found]
        judged.count([kind for kind, _ in kinds])
        for evidence in (evidence for kind, evidence in kinds if kind == "broken"):
            best = judged.found
            upto = actions[: position + 1]
            sizes = configurations.row_size
            if best is None or (sizes(arguments), len(upto)) < (sizes(best.arguments), len(best.actions)):
                judged.found = Found(arguments, evidence, upto)


def _of_appends(release: Release, law: Law, config: Config, actions: Sequence[AppendRows]) -> list[Findings]:
    """Perform appends and return what a law says about each of them. Raises ReleaseFailure."""
    answers = release.rows({**header(config, None), "max_running": _rows_of(config)}, _asked(actions))
    assert law.check is not None
    return [law.check(moment) for moment in moments(config, actions, answers)]


def performed(
    release: Release, law: Law, arguments: Arguments, actions: Sequence[AppendRows], explain: Explain = by_profile
) -> set[Kind]:
    """Perform given appends and return the kinds of the violations of a law. Raises ReleaseFailure, ConfigError, NotShown."""
    config = arguments.resolve(Subject(release).with_rows)
    return {explain(law, config, evidence) for found in _of_appends(release, law, config, actions) for evidence in found or ()}


def _fewer_appends(release: Release, subject: Subject, law: Law, found: Found, explain: Explain) -> Found:
    """Return a violation with no append, and no block of one, that it does not need."""
    config = found.arguments.resolve(subject.with_rows)

    def broken(actions: Sequence[AppendRows]) -> Evidence | None:
        try:
            *_, last = _of_appends(release, law, config, actions)
        except (ReleaseLacks, ReleaseRaised):
            return None
        return next((evidence for evidence in last or () if explain(law, config, evidence) == "broken"), None)

    best = found
    for smaller in _shorter(best.actions):
        evidence = broken(smaller)
        if evidence is not None:
            best = evolve(best, actions=smaller, evidence=evidence)
            break
    return best


def _shorter(actions: tuple[AppendRows, ...]) -> Iterator[tuple[AppendRows, ...]]:
    """Yield shorter appends that may do as well: the last one alone, or with what went into its row, in row 0 or its own."""
    last = actions[-1]
    before = [action for action in actions[:-1] if action.row == last.row]
    groups = range(len(last.blocks))
    for group in groups:
        ids = tuple(block for action in (*before, last) for block in action.blocks[group])
        yield (AppendRows(0, tuple(ids if other == group else () for other in groups)),)
    yield (last,)
    yield (*before, last)


def _asked(actions: Sequence[AppendRows]) -> list[list[Any]]:
    return [[action.row, [list(ids) for ids in action.blocks]] for action in actions]


def _rows_of(config: Config) -> int:
    return len(new_world(config).worker.owners)


def moments(config: Config, actions: Sequence[AppendRows], answers: Sequence[Mapping[str, Any]]) -> Iterator[Moment]:
    """Yield the moments of appends: the rows before and after are those that the release shows."""
    world = new_world(config)
    for action, answer in zip(actions, answers, strict=True):
        after = _shown(world, answer)
        error = answer.get("error")
        refusal = None if error is None else RowCapacityExceeded(str(error))
        yield Moment(world, action, None if refusal else Record("AppendRows"), refusal, after)
        world = after


def _shown(world: World, answer: Mapping[str, Any]) -> World:
    rows = tuple(tuple(tuple(entries) for entries in group) for group in answer["rows"])
    return evolve(world, worker=evolve(world.worker, rows=rows))
