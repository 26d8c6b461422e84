"""The pytest plugin: one named test per law for an adapter in the caller's module (docs/adapters.md).

    test_laws = kvproof_laws(MyAdapter)

It does nothing until it is asked: importing it imports nothing else of kvproof, and its options matter to nobody but the tests
that ``kvproof_laws`` makes and to the fixture ``kvproof_report``. Those work with ``-p no:kvproof`` too, without the options.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kvproof.spec.conformance.adapter import Adapter
    from kvproof.spec.conformance.reports import Report

__all__ = ["kvproof_laws", "kvproof_report"]

ASKED = "kvproof_asked"
"""The attribute of a test function that says what it was asked to judge."""


def kvproof_laws(
    make: Callable[[], Adapter],
    *,
    laws: Sequence[str] = (),
    scopes: Sequence[str] = (),
    seed: int | None = None,
    walks: int | None = None,
    steps: int | None = None,
    policies: Sequence[str] = (),
    must: Sequence[str] = (),
    known: Mapping[str, str] | None = None,
    isolation: bool = True,
    limit: float | None = None,
) -> Callable[..., None]:
    """Return a test function with one parameter per law, to be assigned to a name that begins with ``test``.

    ``make`` is called once per generation run, which all its tests share. ``laws`` are ids or letters of families (all, if
    empty); ``scopes``, ``seed``, ``walks``, ``steps``, ``policies``, ``isolation`` and ``limit`` (seconds) are those of
    ``check_all_laws``; on the command line others can be given. A law that is undetermined is skipped; one of ``must`` (ids or
    families) fails then. ``known`` are laws that are expected to be refuted, with the reason: they fail once they are not.
    The first test, ``adapter``, says whether the adapter could be judged at all. Raises UserError for unknown laws.
    """
    from kvproof.spec.conformance import in_pytest

    expected = dict(known or {})
    asked = in_pytest.Asked(
        make=make,
        laws=in_pytest.law_ids(laws),
        scopes=tuple(scopes),
        seed=seed,
        walks=walks,
        steps=steps,
        policies=tuple(policies),
        must=in_pytest.law_ids(must) if must else (),
        isolation=isolation,
        limit=limit,
    )
    in_pytest.law_ids(tuple(expected))

    @pytest.mark.parametrize("law", [_parameter(law, expected) for law in (in_pytest.ADAPTER, *asked.laws)])
    def test_laws(instance: object = None, /, *, law: str, request: pytest.FixtureRequest) -> None:
        del instance  # in a class this is a method; pytest leaves out no argument for it where one is by position only
        in_pytest.judge_one(asked, law, request)

    caller = sys._getframe(1)
    setattr(test_laws, ASKED, asked)
    # pytest reports where a test is by this attribute: in the caller's module, not here.
    test_laws.place_as = _place(caller.f_code.co_filename, caller.f_lineno)  # type: ignore[attr-defined]
    return test_laws


def _parameter(law: str, expected: Mapping[str, str]) -> Any:
    marks = [pytest.mark.xfail(reason=expected[law], strict=True)] if law in expected else []
    return pytest.param(law, marks=marks, id=law)


def _place(file: str, line: int) -> Callable[[], None]:
    def place() -> None:
        """Stand for a place in another file."""

    place.__code__ = place.__code__.replace(co_filename=file, co_firstlineno=line)
    return place


@pytest.fixture
def kvproof_report(request: pytest.FixtureRequest) -> Callable[..., Report]:
    """Judge an adapter for assertions of one's own: ``kvproof_report(MyAdapter).of("HB-15")``.

    Takes the arguments of ``kvproof_laws``; a run with the same arguments is shared with its tests. Raises what
    ``check_all_laws`` raises.
    """
    from kvproof.spec.conformance import in_pytest

    def judge(make: Callable[[], Adapter], **arguments: Any) -> Report:
        arguments["laws"] = in_pytest.law_ids(arguments.get("laws", ()))
        for name in ("scopes", "policies"):
            arguments[name] = tuple(arguments.get(name, ()))
        return in_pytest.report_of(in_pytest.Asked(make=make, **arguments), request.config)

    return judge


OPTIONS: tuple[tuple[str, str, str, str], ...] = (
    ("seed", "int", "N", "seed of the generated runs; the same seed gives the same report"),
    ("walks", "int", "N", "random walks per scope (default 3)"),
    ("steps", "int", "N", "actions per walk (default 250, with a host tier 500)"),
    ("law", "many", "ID", "judge only this law, or all of a family (HB); may be repeated"),
    ("scope", "many", "NAME", "walk only this configuration; may be repeated"),
    ("report", "text", "DIR", "write the report and its counterexamples here, as JSON and Markdown"),
    ("must", "many", "ID", "fail if this law, or one of this family, is undetermined; may be repeated"),
)
"""Name, type, placeholder and help; each is an option ``--kvproof-NAME`` and a setting ``kvproof_NAME``."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and settings."""
    group = parser.getgroup("kvproof", "judge an adapter by the laws of kvproof")
    for name, kind, placeholder, text in OPTIONS:
        how: dict[str, Any] = {"type": int} if kind == "int" else {"action": "append"} if kind == "many" else {}
        group.addoption(f"--kvproof-{name}", dest=f"kvproof_{name}", metavar=placeholder, default=None, help=text, **how)
        written: dict[str, Any] = {"type": "args"} if kind == "many" else {}
        parser.addini(f"kvproof_{name}", f"{text} (as --kvproof-{name})", default=None, **written)
    text = "fail on every law that is undetermined"
    group.addoption("--kvproof-strict", dest="kvproof_strict", action="store_true", default=None, help=text)
    parser.addini("kvproof_strict", f"{text} (as --kvproof-strict)", type="bool", default=False)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the laws that ``--kvproof-law`` names."""
    own = [item for item in items if hasattr(getattr(item, "function", None), ASKED)]
    if not own:
        return
    from kvproof.spec.conformance import in_pytest

    in_pytest.check_scopes(config)
    kept = in_pytest.selected(config)
    gone = [item for item in own if kept is not None and in_pytest.law_of(item) not in kept]
    if gone:
        config.hook.pytest_deselected(items=gone)
        items[:] = [item for item in items if item not in gone]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many laws hold, are refuted and are undetermined: what is skipped would be overlooked otherwise."""
    every = [report for reports in terminalreporter.stats.values() for report in reports]
    lines = [*_totals(every), *_skipped(every)]
    if lines:
        terminalreporter.section("kvproof")
        for line in lines:
            terminalreporter.write_line(line)


def _totals(reports: Iterable[Any]) -> list[str]:
    counts: dict[tuple[str, str], Counter[str]] = {}
    for report in reports:
        told = dict(getattr(report, "user_properties", ()))
        if "kvproof_verdict" in told and report.when == "call":
            about = (report.nodeid.partition("[")[0], f"seed {told['kvproof_seed']}, {told['kvproof_actions']} actions")
            counts.setdefault(about, Counter())[told["kvproof_verdict"]] += 1
    return [
        f"{test}: {count['holds']} laws hold, {count['refuted']} refuted, {count['undetermined']} undetermined ({run})"
        for (test, run), count in counts.items()
    ]


REASONS = (
    ("it needs what is not shown", "need what the adapter does not show"),
    ("its premise was never true", "never came up in these runs"),
    ("its other configuration is not supported", "need another configuration that the adapter does not support"),
    ("it is about formulas that no adapter shows", "are about formulas that no adapter shows"),
)
"""How the reason of an undetermined law begins, and how a summary says it; the page docs/adapters.md says what to do."""


def _skipped(reports: Iterable[Any]) -> list[str]:
    """Return why tests of laws were skipped, in one line; nothing if none was."""
    counts: Counter[str] = Counter()
    for report in reports:
        told = dict(getattr(report, "user_properties", ()))
        if _is_skip(report) and told.get("kvproof_verdict") == "undetermined":
            why = str(report.longrepr[2]).partition(" is undetermined: ")[2]
            counts[next((words for begin, words in REASONS if why.startswith(begin)), "have other reasons")] += 1
    if not counts:
        return []
    shares = ", ".join(f"{count} {words}" for words, count in counts.most_common())
    return [f"skipped (s) are laws of which nothing can be said: {shares}; -rs lists every reason (docs/adapters.md)"]


def _is_skip(report: Any) -> bool:
    """Tell whether a report is that of a test that was skipped by what it found, with the place and the reason."""
    return getattr(report, "when", "") == "call" and getattr(report, "skipped", False) and isinstance(report.longrepr, tuple)
