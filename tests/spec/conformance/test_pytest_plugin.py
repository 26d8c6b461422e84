"""The pytest plugin: one named test per law, three outcomes, nothing unless it is asked."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from kvproof.spec import laws as all_laws
from kvproof.spec import progress
from kvproof.spec.conformance import in_pytest

pytest_plugins = ["pytester"]

# Named and not by its entry point: also where kvproof is not installed, and not twice where it is.
PLUGIN = ("-p", "no:kvproof", "-p", "kvproof.spec.pytest_plugin", "-p", "no:xdist", "-p", "no:cacheprovider")

# A stand-in for the generation run, so that these tests are about the plugin alone: what it was asked is written down.
STAND_IN = """
import json, pathlib
import pytest
from kvproof.spec.conformance import api
from kvproof.spec.conformance.adapter import AdapterError
from kvproof.spec.conformance.oracle import Verdict
from kvproof.spec.conformance.reports import LawVerdict, Report, ScopeRun

VERDICTS = {"PC-1": Verdict.HOLDS, "PC-2": Verdict.REFUTED, "PC-3": Verdict.UNDETERMINED}
WHY = {"PC-1": "", "PC-2": "3 blocks are missing", "PC-3": "references are not shown"}

def check_all_laws(adapter, progress, **asked):
    with open("runs.ndjson", "a") as file:
        print(json.dumps(asked, default=list), file=file)
    if adapter.broken:
        raise AdapterError("tables are declared and not shown")
    laws = [LawVerdict(law, f"Sentence of {law}.", VERDICTS[law], WHY[law], judged=7) for law in asked["laws"]]
    actions = 0 if adapter.idle else 1234
    return Report("mine", asked["seed"], ("hits", "tables"), tuple(laws), (ScopeRun("fa4", 3, actions),))

class Adapter:
    broken = idle = False

api.check_all_laws = check_all_laws
"""
LAWS = 'laws=("PC-1", "PC-2", "PC-3")'
MODULE = f"""
from stand_in import Adapter
from kvproof.spec.pytest_plugin import kvproof_laws

test_laws = kvproof_laws(Adapter, {LAWS})
"""


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    root = Path(__file__).resolve().parents[3]
    monkeypatch.setenv("PYTHONPATH", f"{root / 'tests/_path'}")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    # The stand-in takes the place of the run in the modules that this process has loaded: undone when the test ends.
    monkeypatch.setattr("kvproof.spec.conformance.api.check_all_laws", None)
    pytester.makepyfile(stand_in=STAND_IN)
    pytester.makepyfile(test_mine=MODULE)
    return pytester


def runs(inner: pytest.Pytester) -> list[dict[str, object]]:
    import json

    file = inner.path / "runs.ndjson"
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def test_every_law_is_a_named_test_of_the_callers_module_with_one_of_three_outcomes(inner: pytest.Pytester) -> None:
    result = inner.runpytest_inprocess(*PLUGIN, "-v", "-rA")
    result.assert_outcomes(passed=2, failed=1, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "test_mine.py::test_laws?adapter? PASSED*",
            "test_mine.py::test_laws?PC-1? PASSED*",
            "test_mine.py::test_laws?PC-2? FAILED*",
            "test_mine.py::test_laws?PC-3? SKIPPED*",
        ]
    )
    result.stdout.fnmatch_lines(["SKIPPED?* test_mine.py:*PC-3 is undetermined: references are not shown"])
    assert len(runs(inner)) == 1, "one run serves all tests"


def test_a_refuted_law_says_what_it_is_what_was_shown_and_how_to_see_it_again(inner: pytest.Pytester) -> None:
    result = inner.runpytest_inprocess(*PLUGIN, "--kvproof-seed", "5", "--kvproof-walks", "2")
    result.stdout.fnmatch_lines(
        [
            "PC-2 is refuted: 3 blocks are missing",
            "law       Sentence of PC-2.",
            "evidence  3 blocks are missing",
            "adapter   mine, shows hits, tables",
            "again     pytest 'test_mine.py::test_laws?PC-2?' --kvproof-seed 5 --kvproof-walks 2",
        ]
    )
    result.stdout.fnmatch_lines(["FAILED test_mine.py::test_laws?PC-2? - *PC-2 is refuted: 3 blocks*"])
    assert "in_pytest.py" not in result.stdout.str(), "no frame of ours stands in the failure"


def test_the_line_that_reproduces_selects_that_one_test(inner: pytest.Pytester) -> None:
    result = inner.runpytest_inprocess(*PLUGIN, "test_mine.py::test_laws[PC-2]", "--kvproof-seed", "5")
    result.assert_outcomes(failed=1)
    assert runs(inner)[0]["laws"] == ["PC-1", "PC-2", "PC-3"], "the run is the same, whichever of its tests is chosen"


def test_the_summary_counts_what_would_be_overlooked(inner: pytest.Pytester) -> None:
    result = inner.runpytest_inprocess(*PLUGIN)
    result.stdout.fnmatch_lines(
        ["*= kvproof =*", "test_mine.py::test_laws: 1 laws hold, 1 refuted, 1 undetermined (seed 0, 1234 actions)"]
    )


def test_the_summary_says_why_laws_were_skipped(inner: pytest.Pytester) -> None:
    whys = {
        "PC-1": "it needs what is not shown: rows (3 times); judged 0 times without it",
        "PC-2": "its premise was never true in 9 actions in 1 scope",
        "PC-3": "it needs what is not shown: handoffs (1 times); judged 0 times without it",
        "PC-4": "no scope could be searched",
    }
    verdicts = dict.fromkeys(whys, "Verdict.UNDETERMINED")
    told = ", ".join(f'"{law}": {verdict}' for law, verdict in verdicts.items())
    stand_in = STAND_IN.replace('VERDICTS = {"PC-1"', f"VERDICTS = {{{told}}}\nUNUSED = {{'PC-1'").replace(
        'WHY = {"PC-1"', f"WHY = {whys!r}\nUNUSED = {{'PC-1'"
    )
    inner.makepyfile(stand_in=stand_in)
    inner.makepyfile(test_mine=MODULE.replace(LAWS, 'laws=("PC-1", "PC-2", "PC-3", "PC-4")'))
    result = inner.runpytest_inprocess(*PLUGIN)
    result.assert_outcomes(passed=1, skipped=4)
    (line,) = [line for line in result.outlines if line.startswith("skipped (s) ")]
    assert "2 need what the adapter does not show, 1 never came up in these runs, 1 have other reasons; -rs lists" in line


def test_nothing_is_said_of_skipped_laws_where_none_was(inner: pytest.Pytester) -> None:
    result = inner.runpytest_inprocess(*PLUGIN, "--kvproof-law", "PC-1")
    result.assert_outcomes(passed=2, deselected=2)
    assert not [line for line in result.outlines if line.startswith("skipped (s) ")]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((), {"seed": 0, "walks": None, "steps": None, "scopes": None}),
        (("--kvproof-seed", "3"), {"seed": 3}),
        (("--kvproof-walks", "4", "--kvproof-steps", "50"), {"walks": 4, "steps": 50}),
        (("--kvproof-scope", "fa4", "--kvproof-scope", "fa4-m4-n2"), {"scopes": ["fa4", "fa4-m4-n2"]}),
        (("--kvproof-law", "PC-3"), {"laws": ["PC-3"]}),
        (("--kvproof-law", "pc"), {"laws": ["PC-1", "PC-2", "PC-3"]}),
        (("-o", "kvproof_seed=8"), {"seed": 8}),
        (("-o", "kvproof_seed=8", "--kvproof-seed", "9"), {"seed": 9}),
        (("-o", "kvproof_scope=fa4 fa2-n4"), {"scopes": ["fa4", "fa2-n4"]}),
    ],
)
def test_options_and_settings_reach_the_run(
    inner: pytest.Pytester, given: tuple[str, ...], expected: dict[str, object]
) -> None:
    inner.runpytest_inprocess(*PLUGIN, *given)
    (asked,) = runs(inner)
    assert {name: asked[name] for name in expected} == expected


def test_what_the_test_itself_asks_for_comes_before_settings_and_after_options(inner: pytest.Pytester) -> None:
    inner.makepyfile(test_mine=MODULE.replace(LAWS, f"{LAWS}, seed=2, walks=6"))
    inner.runpytest_inprocess(*PLUGIN, "-o", "kvproof_seed=8", "--kvproof-walks", "7")
    (asked,) = runs(inner)
    assert (asked["seed"], asked["walks"]) == (2, 7)


def test_a_law_that_is_named_leaves_the_others_out(inner: pytest.Pytester) -> None:
    result = inner.runpytest_inprocess(*PLUGIN, "--kvproof-law", "PC-1")
    result.assert_outcomes(passed=2, deselected=2)


@pytest.mark.parametrize(
    "given",
    [
        ("--kvproof-strict",),
        ("-o", "kvproof_strict=true"),
        ("--kvproof-must", "PC-3"),
        ("--kvproof-must", "PC"),
        ("-o", "kvproof_must=PC-3"),
    ],
)
def test_undetermined_fails_where_that_is_asked_for(inner: pytest.Pytester, given: tuple[str, ...]) -> None:
    result = inner.runpytest_inprocess(*PLUGIN, *given)
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["*PC-3 is undetermined and must be determined: references are not shown"])


def test_a_test_may_say_itself_what_must_be_determined(inner: pytest.Pytester) -> None:
    inner.makepyfile(test_mine=MODULE.replace(LAWS, f'{LAWS}, must=("PC-3",)'))
    inner.runpytest_inprocess(*PLUGIN).assert_outcomes(passed=2, failed=2)


def test_a_law_that_must_be_determined_and_is_does_not_fail(inner: pytest.Pytester) -> None:
    inner.runpytest_inprocess(*PLUGIN, "--kvproof-must", "PC-1").assert_outcomes(passed=2, failed=1, skipped=1)


def test_known_deviations_are_expected_and_fail_once_they_are_gone(inner: pytest.Pytester) -> None:
    inner.makepyfile(test_mine=MODULE.replace(LAWS, f'{LAWS}, known={{"PC-2": "ours since 2019", "PC-1": "mended"}}'))
    result = inner.runpytest_inprocess(*PLUGIN)
    result.assert_outcomes(passed=1, failed=1, skipped=1, xfailed=1)
    result.stdout.fnmatch_lines(["*XPASS(strict)*mended*"])


@pytest.mark.parametrize("known", ['known={"PC-99": "?"}', 'must=("ZZ",)', 'laws=("PC-1", "PQ-1")'])
def test_laws_that_do_not_exist_are_named_at_once(inner: pytest.Pytester, known: str) -> None:
    inner.makepyfile(test_mine=MODULE.replace(LAWS, known))
    result = inner.runpytest_inprocess(*PLUGIN)
    result.stdout.fnmatch_lines(["*no law '*`kvproof laws` lists the known ones"])
    assert result.ret == pytest.ExitCode.INTERRUPTED


def test_an_option_that_names_no_law_is_a_usage_error(inner: pytest.Pytester) -> None:
    result = inner.runpytest_inprocess(*PLUGIN, "--kvproof-law", "PQ-1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*no law 'PQ-1'*"])


def test_an_adapter_that_breaks_its_contract_fails_once_and_nothing_passes(inner: pytest.Pytester) -> None:
    inner.makepyfile(test_mine=MODULE + "\nAdapter.broken = True\n")
    result = inner.runpytest_inprocess(*PLUGIN)
    result.assert_outcomes(failed=1, skipped=3)
    assert result.outlines.count("the adapter could not be judged: tables are declared and not shown") == 1
    result.stdout.no_fnmatch_line("During handling*")
    assert len(runs(inner)) == 1


def test_an_adapter_that_performed_nothing_fails(inner: pytest.Pytester) -> None:
    inner.makepyfile(test_mine=MODULE + "\nAdapter.idle = True\n")
    result = inner.runpytest_inprocess(*PLUGIN)
    result.stdout.fnmatch_lines(["the adapter performed no action in any scope"])


def test_the_fixture_gives_the_report_and_shares_the_run(inner: pytest.Pytester) -> None:
    inner.makepyfile(
        test_mine=MODULE
        + f"""
def test_own(kvproof_report):
    report = kvproof_report(Adapter, {LAWS})
    assert report.of("PC-1").judged == 7
"""
    )
    inner.runpytest_inprocess(*PLUGIN).assert_outcomes(passed=3, failed=1, skipped=1)
    assert len(runs(inner)) == 1


def test_the_report_of_junit_says_law_verdict_judged_and_source(inner: pytest.Pytester) -> None:
    inner.runpytest_inprocess(*PLUGIN, "--junit-xml", "junit.xml")
    cases = {case.get("name"): case for case in ElementTree.parse(inner.path / "junit.xml").iter("testcase")}
    for law, verdict in (("PC-1", "holds"), ("PC-2", "refuted"), ("PC-3", "undetermined")):
        told = {entry.get("name"): entry.get("value") for entry in cases[f"test_laws[{law}]"].iter("property")}
        assert told["kvproof_law"] == law
        assert told["kvproof_verdict"] == verdict
        assert told["kvproof_judged"] == "7"
        assert told["kvproof_source"] == next(own.source for own in all_laws.ALL if own.id == law)


def test_report_files_are_written_where_the_option_says(inner: pytest.Pytester) -> None:
    inner.runpytest_inprocess(*PLUGIN, "--kvproof-report", "found")
    assert sorted(path.name for path in (inner.path / "found").iterdir()) == [
        "index.html",
        "mine.html",
        "mine.json",
        "mine.txt",
    ]


def test_adapters_of_one_name_do_not_write_over_each_other(inner: pytest.Pytester) -> None:
    inner.makepyfile(test_mine=MODULE + f"\ntest_others = kvproof_laws(Adapter, {LAWS}, seed=4)\n")
    inner.runpytest_inprocess(*PLUGIN, "--kvproof-report", "found")
    found = inner.path / "found"
    written = [f"{name}.{suffix}" for name in ("mine-2", "mine") for suffix in ("html", "json", "txt")]
    assert sorted(path.name for path in found.iterdir()) == ["index.html", *written]
    index = (found / "index.html").read_text()
    assert [name for name in ("mine.html", "mine-2.html") if f'href="{name}"' in index] == ["mine.html", "mine-2.html"]
    assert [json.loads((found / name).read_text())["seed"] for name in ("mine.json", "mine-2.json")] == [0, 4]


def test_an_option_that_names_no_scope_is_a_usage_error(inner: pytest.Pytester) -> None:
    result = inner.runpytest_inprocess(*PLUGIN, "--kvproof-scope", "zz")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*no scope 'zz'*"])
    assert not runs(inner)


@pytest.mark.parametrize("terminal", [True, False])
def test_on_a_terminal_it_says_what_is_being_done(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    written: list[str] = []
    monkeypatch.setattr(progress.Told, "doing", lambda self, what: written.append(what))
    monkeypatch.setattr(request.config.pluginmanager.getplugin("terminalreporter"), "isatty", terminal)
    monkeypatch.setattr(progress.Told, "end", lambda self: written.append("wiped"))
    with in_pytest.progress(request.config) as say:
        say("fa4: walk 1 of 3")
    assert written == (["fa4: walk 1 of 3", "wiped"] if terminal else [])


def test_without_the_plugin_the_tests_run_all_the_same(inner: pytest.Pytester) -> None:
    result = inner.runpytest_inprocess("-p", "no:kvproof", "-p", "no:xdist", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, failed=1, skipped=1)


def test_it_changes_nothing_for_those_who_do_not_ask(inner: pytest.Pytester) -> None:
    (inner.path / "test_mine.py").unlink()
    inner.makepyfile(test_other="def test_one(): pass\n")
    result = inner.runpytest_inprocess(*PLUGIN, "--kvproof-strict", "--kvproof-law", "nonsense")
    result.assert_outcomes(passed=1)
    assert "= kvproof =" not in result.stdout.str()


def test_importing_it_imports_nothing_else_of_kvproof() -> None:
    code = (
        "import sys, kvproof.spec.pytest_plugin\n"
        "print(sorted(name for name in sys.modules if name.split('.')[0] in ('kvproof', 'hypothesis', 'rich', 'msgspec')))"
    )
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": f"{root / 'tests/_path'}"}
    )
    assert done.stdout.strip() == "['kvproof', 'kvproof.spec', 'kvproof.spec.pytest_plugin']"


def test_all_laws_have_a_test_unless_some_are_named() -> None:
    assert in_pytest.law_ids(()) == tuple(law.id for law in all_laws.ALL)
    assert in_pytest.law_ids(("pc-1", "HB")) == (*(law.id for law in all_laws.ALL if law.id.startswith("HB-")), "PC-1")


@pytest.mark.parametrize("distribution", ["load", "loadscope"])
def test_it_works_in_the_processes_of_xdist(inner: pytest.Pytester, distribution: str) -> None:
    pytest.importorskip("xdist")
    plugins = ["-p", "xdist", *PLUGIN[:4]]
    result = inner.runpytest_subprocess(*plugins, "--strict-markers", "-n", "2", "--dist", distribution)
    result.assert_outcomes(passed=2, failed=1, skipped=1)
    result.stdout.fnmatch_lines(["test_mine.py::test_laws: 1 laws hold, 1 refuted, 1 undetermined (seed 0, 1234 actions)"])
    result.stdout.fnmatch_lines(["again     pytest 'test_mine.py::test_laws?PC-2?' --kvproof-seed 0"])
    if distribution == "loadscope":
        assert len(runs(inner)) == 1, "the tests of a module share one process and one run"


IN_A_CLASS = f"""
import pytest
from stand_in import Adapter
from kvproof.spec.pytest_plugin import kvproof_laws

class TestMine:
    test_laws = kvproof_laws(Adapter, {LAWS})
    test_marked = pytest.mark.usefixtures("tmp_path")(kvproof_laws(Adapter, {LAWS}))
"""


def test_it_may_stand_in_a_class(inner: pytest.Pytester) -> None:
    inner.makepyfile(test_mine=IN_A_CLASS)
    result = inner.runpytest_inprocess(*PLUGIN, "-v")
    result.assert_outcomes(passed=4, failed=2, skipped=2)
    result.stdout.fnmatch_lines(["test_mine.py::TestMine::test_laws?PC-2? FAILED*"])
    assert len(runs(inner)) == 1


def test_an_adapter_that_cannot_be_made_fails_once(inner: pytest.Pytester) -> None:
    inner.makepyfile(
        test_mine=f"""
from kvproof.spec.pytest_plugin import kvproof_laws

made = []

def make():
    made.append(1)
    raise RuntimeError("no such library")

test_laws = kvproof_laws(make, {LAWS})

def test_once():
    assert made == [1]
"""
    )
    result = inner.runpytest_inprocess(*PLUGIN, "-rA")
    result.assert_outcomes(passed=1, failed=1, skipped=3)
    result.stdout.fnmatch_lines(["*the adapter could not be judged: it cannot be made: RuntimeError: no such library*"])
