"""What the pytest plugin does once it is asked: one shared run per adapter, and what a test says of one law."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NoReturn

import pytest
from attrs import field, frozen

from kvproof.spec import judge
from kvproof.spec import laws as all_laws
from kvproof.spec.conformance import api, files, reports
from kvproof.spec.conformance.adapter import Adapter, AdapterError
from kvproof.spec.conformance.oracle import Verdict
from kvproof.spec.conformance.reports import LawVerdict, Report
from kvproof.spec.exits import UserError
from kvproof.spec.progress import Told

NEEDS_NOTHING = "LV-9"
"""The law that is judged where no other one is asked for: whether the adapter can be judged at all is a test of its own."""
ADAPTER = "adapter"
"""The test that says whether an adapter could be judged at all."""


@frozen(slots=True)
class Asked:
    """What a test asks for; None: what the settings or, without them, ``check_all_laws`` say."""

    make: Callable[[], Adapter]
    laws: tuple[str, ...]
    scopes: tuple[str, ...] = ()
    seed: int | None = None
    walks: int | None = None
    steps: int | None = None
    policies: tuple[str, ...] = ()
    must: tuple[str, ...] = field(default=(), eq=False)
    isolation: bool = True
    limit: float | None = None


_RUNS: pytest.StashKey[dict[Asked, Report | Exception]] = pytest.StashKey()
_NAMES: pytest.StashKey[dict[str, Asked]] = pytest.StashKey()


def law_ids(names: Sequence[str]) -> tuple[str, ...]:
    """Return the ids of laws named by id or family, all laws for none. Raises UserError."""
    return tuple(law.id for law in api.chosen_laws(names or None))


def law_of(item: Any) -> str:
    """Return the law that a test is about."""
    return str(item.callspec.params["law"])


def selected(config: pytest.Config) -> frozenset[str] | None:
    """Return the tests that ``--kvproof-law`` keeps, None for all. Raises UsageError."""
    named = _setting(config, "law", (), ())
    try:
        return frozenset((ADAPTER, *law_ids(named))) if named else None
    except UserError as error:
        raise pytest.UsageError(str(error)) from error


def check_scopes(config: pytest.Config) -> None:
    """Check the scopes that the command line or the settings name. Raises UsageError."""
    try:
        api.chosen_scopes(tuple(_setting(config, "scope", (), ())))
    except UserError as error:
        raise pytest.UsageError(str(error)) from None


def _setting(config: pytest.Config, name: str, asked: Any, default: Any) -> Any:
    """Return an option: the command line's, else what the test asks for, else the configuration file's."""
    given = config.getoption(f"kvproof_{name}", None)
    if given is not None:
        return given
    if asked is not None and asked != ():
        return asked
    try:
        written = config.getini(f"kvproof_{name}")
    except (KeyError, ValueError):
        return default  # the plugin is off, and its settings with it
    return default if written in (None, "", []) else written


def _number(config: pytest.Config, name: str, asked: int | None) -> int | None:
    value = _setting(config, name, asked, None)
    try:
        return None if value is None else int(value)
    except ValueError as error:
        raise UserError(f"kvproof_{name} is a number, got {value!r}") from error


def report_of(asked: Asked, config: pytest.Config) -> Report:
    """Return the report on what is asked for; the first one to ask runs it. Raises what ``check_all_laws`` raises."""
    runs = config.stash.setdefault(_RUNS, {})
    if asked not in runs:
        try:
            runs[asked] = _run(asked, config)
        except (AdapterError, UserError) as error:
            runs[asked] = error
    found = runs[asked]
    if isinstance(found, Exception):
        raise found
    return found


def _run(asked: Asked, config: pytest.Config) -> Report:
    kept = selected(config)
    arguments: dict[str, Any] = {} if asked.limit is None else {"limit": asked.limit}
    with progress(config) as say:
        report = api.check_all_laws(
            _made(asked.make),
            laws=[law for law in asked.laws if kept is None or law in kept] or [NEEDS_NOTHING],
            scopes=tuple(_setting(config, "scope", asked.scopes, ())) or None,
            seed=_number(config, "seed", asked.seed) or 0,
            walks=_number(config, "walks", asked.walks),
            steps=_number(config, "steps", asked.steps),
            policies=asked.policies,
            isolation=asked.isolation,
            progress=say,
            **arguments,
        )
    folder = _setting(config, "report", None, None)
    if folder:
        files.write(report, config.invocation_params.dir / folder, file_name(asked, report, config))
    return report


def _made(make: Callable[[], Adapter]) -> Adapter:
    """Return a new adapter. Raises AdapterError if it cannot be made, so that it is not tried again for every law."""
    try:
        return make()
    except Exception as error:
        raise AdapterError(f"it cannot be made: {judge.describe_crash(error)}") from error


@contextmanager
def progress(config: pytest.Config) -> Iterator[Callable[[str], None]]:
    """Give what says what is being done: on a terminal only, past the capturing; nothing in the processes of xdist."""
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is None or not getattr(reporter, "isatty", False):
        yield lambda doing: None
        return
    told = Told("kvproof", quiet=True)

    def shown() -> AbstractContextManager[None]:
        return nullcontext() if capture is None else capture.global_and_fixture_disabled()

    def say(doing: str) -> None:
        with shown():
            told.doing(doing)

    try:
        yield say
    finally:
        with shown():
            told.end()


def file_name(asked: Asked, report: Report, config: pytest.Config) -> str:
    """Return how the files of a report begin: adapters of one name get numbers, in the order in which they are judged."""
    names = config.stash.setdefault(_NAMES, {})
    own = files.stem(report.adapter)
    name, number = own, 1
    while names.setdefault(name, asked) != asked:
        number += 1
        name = f"{own}-{number}"
    return name


def judge_one(asked: Asked, law: str, request: pytest.FixtureRequest) -> None:
    """Pass if a law holds, fail if it is refuted, skip (or fail, if it must be determined) if nothing can be said."""
    config = request.config
    report, wrong = None, ""
    try:
        report = report_of(asked, config)
    except (AdapterError, UserError) as error:
        wrong = f"the adapter could not be judged: {error}"
    if report is None:  # outside of the handler, or pytest shows the error a second time
        if law == ADAPTER:
            pytest.fail(wrong, pytrace=False)
        _undetermined(asked, law, wrong, config)
    if law == ADAPTER:
        _judged_at_all(report)
        return
    verdict = report.of(law)
    request.node.user_properties += _properties(report, verdict)
    if verdict.verdict is Verdict.REFUTED:
        pytest.fail(failure(report, verdict, command(asked, request)), pytrace=False)
    if verdict.verdict is Verdict.UNDETERMINED:
        _undetermined(asked, law, verdict.why, config)


def _undetermined(asked: Asked, law: str, why: str, config: pytest.Config) -> NoReturn:
    named = _setting(config, "must", (), ())
    must = (*asked.must, *(law_ids(named) if named else ()))
    if _setting(config, "strict", None, False) or law in must:
        pytest.fail(f"{law} is undetermined and must be determined: {why}", pytrace=False)
    raise pytest.skip.Exception(f"{law} is undetermined: {why}", _use_item_location=True)


def _judged_at_all(report: Report) -> None:
    """Fail if no run took place, or if something is wrong with the judging itself."""
    if report.problems:
        broken = ", ".join(verdict.law for verdict in report.refuted)
        hint = (f"refuted, and perhaps the cause: {broken}",) if broken else ()
        pytest.fail("\n".join(("not everything could be judged", *report.problems, *hint)), pytrace=False)
    if not report.actions:
        skipped = [f"{scope.name}: {scope.skipped}" for scope in report.scopes]
        pytest.fail("\n".join(("the adapter performed no action in any scope", *skipped)), pytrace=False)


def _properties(report: Report, verdict: LawVerdict) -> list[tuple[str, object]]:
    source = next((law.source for law in all_laws.ALL if law.id == verdict.law), "")
    told: dict[str, object] = {
        "law": verdict.law,
        "verdict": verdict.verdict.value,
        "judged": verdict.judged,
        "source": source,
        "seed": report.seed,
        "actions": report.actions,
    }
    return [(f"kvproof_{name}", value) for name, value in told.items()]


def command(asked: Asked, request: pytest.FixtureRequest) -> str:
    """Return the line that runs a test again as it was run."""
    words = ["pytest", request.node.nodeid.rpartition("]")[0] + "]"]  # pytest-xdist may write a group behind it
    for name, value in (("seed", asked.seed), ("walks", asked.walks), ("steps", asked.steps)):
        number = _number(request.config, name, value)
        if number is not None or name == "seed":
            words += [f"--kvproof-{name}", str(number or 0)]
    for name in ("law", "scope"):
        for value in request.config.getoption(f"kvproof_{name}", None) or ():
            words += [f"--kvproof-{name}", value]
    return shlex.join(words)


def failure(report: Report, verdict: LawVerdict, again: str) -> str:
    """Return what a failing test says: the law, the evidence, the actions with what was shown, how to see it again."""
    lines = [f"{verdict.law} is refuted: {verdict.why}", "", f"law       {verdict.sentence}", f"evidence  {verdict.why}"]
    if reports.weight(verdict.law):
        lines.append(f"means     {reports.weight(verdict.law)}")
    if verdict.explained:
        lines.append(f"declare?  {reports.declarable(verdict)}")
    if verdict.counterexample is not None:
        told = reports.story(verdict.counterexample)
        lines += ["actions   and what the adapter showed after each", *(f"    {line}" for line in told)]
    lines += [f"adapter   {report.adapter}, shows {', '.join(report.shows) or 'nothing'}"]
    return "\n".join((*lines, f"again     {again}"))
