"""The command line of conform: exit codes, what it prints, and a last line that reproduces."""

import json
import os
from pathlib import Path

import pytest
from attrs import evolve

from kvproof.spec.cli import main
from kvproof.spec.commands import _conform_adapter, conform
from kvproof.spec.conformance import api, reports
from kvproof.spec.conformance.adapter import Observation, Shows
from kvproof.spec.conformance.oracle import Verdict
from kvproof.spec.exits import ExitCode, UserError
from kvproof.spec.vllm import legends, matrix, process, releases
from kvproof.spec.vllm.releases import Release
from kvproof.spec.vllm.verdicts import NEVER, Row, Table

from .pretending import opened

HOWS = {"1.0": "holds", "2.0": "broken", "3.0": "unsupported"}


@pytest.fixture(autouse=True)
def pretended(monkeypatch):
    """Releases 1.0, 2.0 and 3.0 that are pretended, run in this process."""

    def find(name, *, cache=None, say=lambda text: None):
        if name not in HOWS:
            raise UserError(f"pip offers no vLLM {name}")
        return Release(name, Path("nowhere"), "download", "pretended")

    whole = matrix.perform_all
    monkeypatch.setattr(releases, "find", find)
    monkeypatch.setattr(process, "missing_packages", tuple)
    monkeypatch.setattr(
        matrix,
        "perform_all",
        lambda work, processes, finished=lambda job: None, open_runner=None: whole(work, 1, finished, opened(HOWS)),
    )


def run(capsys, *words):
    code = main(["conform", "vllm", *words, "--scope", "fa4-m4", "--steps", "30", "--law", "PC-3"])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_release_that_holds(capsys):
    code, out, _ = run(capsys, "--version", "1.0")
    assert code == ExitCode.HOLDS
    assert "PC-3" in out
    assert "verdict: holds" in out
    assert out.splitlines()[-1] == "kvproof conform vllm --version 1.0 --seed 0 --steps 30 --scope fa4-m4 --law PC-3"


def test_a_refuted_release_ends_with_the_line_that_reproduces_it(capsys, tmp_path):
    code, out, _ = run(capsys, "--version", "2.0")
    assert code == ExitCode.REFUTED
    assert "vLLM 2.0: PC-3 does not hold" in out
    last = out.splitlines()[-1]
    assert last.startswith("kvproof conform vllm --version 2.0 --scope fa4-m4 --seed 0 --case 0 --law PC-3")
    assert main(last.split()[1:]) == ExitCode.REFUTED
    capsys.readouterr()


def test_a_report_gives_a_script_that_reproduces(capsys, tmp_path):
    code, out, _ = run(capsys, "--version", "2.0", "--report", str(tmp_path))
    last = out.splitlines()[-1]
    assert code == ExitCode.REFUTED
    assert str(tmp_path / "vllm-2.0" / "PC-3.script.json") in last
    assert main(last.split()[1:]) == ExitCode.REFUTED
    document = json.loads((tmp_path / "conform.json").read_text())
    assert document["verdict"] == "refuted"
    capsys.readouterr()


def test_a_matrix_has_a_column_per_release(capsys):
    code, out, _ = run(capsys, "--versions", "1.0,2.0")
    assert code == ExitCode.REFUTED
    row = next(line for line in out.splitlines() if line.strip().startswith("PC-3"))
    assert "holds" in row
    assert "refuted" in row


def test_only_what_is_new_in_head_fails(capsys):
    assert run(capsys, "--base", "2.0", "--head", "1.0")[0] == ExitCode.HOLDS
    code, out, _ = run(capsys, "--base", "1.0", "--head", "2.0")
    assert code == ExitCode.REFUTED
    assert "new in 2.0: PC-3: 1.0 is not refuted by it" in out
    assert "verdict: refuted: new in 2.0: PC-3" in out


def test_a_comparison_says_what_is_fixed_and_ends_with_its_own_line(capsys):
    _, out, _ = run(capsys, "--base", "2.0", "--head", "1.0")
    fixed = next(line for line in out.splitlines() if line.startswith("fixed in 1.0"))
    assert fixed.startswith("fixed in 1.0: PC-3: holds, judged ")
    assert "verdict: holds: nothing is new in 1.0 against 2.0" in out
    assert out.splitlines()[-1] == "kvproof conform vllm --base 2.0 --head 1.0 --seed 0 --steps 30 --scope fa4-m4 --law PC-3"
    document = json.loads(run(capsys, "--base", "2.0", "--head", "1.0", "--json")[1])
    assert document["compared"]["gone"] == {"PC-3": "holds"}


def test_a_law_asked_for_that_the_head_does_not_show_is_undetermined(capsys):
    code, out, _ = run(capsys, "--base", "1.0", "--head", "3.0")
    assert code == ExitCode.UNDETERMINED
    assert "verdict: undetermined: vLLM 3.0: it could not be run; vLLM 3.0: PC-3 is undetermined" in out


def test_a_case_of_a_file_is_shown_as_it_is(capsys, tmp_path):
    """The same script again: nothing is made smaller, and the line that reproduces names the file."""
    case = json.dumps({**matrix.plan(matrix.Options(scope="fa4-m4", steps=30))[0].as_json(), "law": "PC-3"})
    file = tmp_path / "some.json"
    file.write_text(case)
    words = ["conform", "vllm", "--version", "2.0", "--script", str(file), "--law", "PC-3"]
    assert main([*words, "--json"]) == ExitCode.REFUTED
    (finding,) = json.loads(capsys.readouterr().out)["releases"][0]["findings"]
    assert finding["case"]["script"] == json.loads(case)["script"]
    assert main([*words, "--quick"]) == ExitCode.REFUTED
    assert capsys.readouterr().out.splitlines()[-1] == f"kvproof conform vllm --version 2.0 --script {file} --law PC-3"


def test_the_line_that_reproduces_keeps_what_bounds_the_search(capsys):
    _, out, _ = run(capsys, "--version", "2.0", "--quick")
    last = out.splitlines()[-1]
    assert last == "kvproof conform vllm --version 2.0 --scope fa4-m4 --seed 0 --case 0 --quick --law PC-3"


def rows_of(version, **verdicts):
    rows = tuple(
        Row(law.replace("_", "-"), verdict, 17, 3 * (verdict == "refuted"), why=NEVER * (verdict == "undetermined"))
        for law, verdict in verdicts.items()
    )
    return Table(version, "pretended", rows, 1, 40, 60)


def printed(capsys, tables, everything=False):
    conform._print(tables, None, ExitCode.REFUTED, matrix.Options(), everything)
    return capsys.readouterr().out


def test_what_matters_comes_first_and_what_holds_is_folded(capsys):
    holding = {f"PC_{number}": "holds" for number in range(1, 14)}
    table = rows_of("1.0", **holding, TB_11="bent", CC_1="declared", DS_2="refuted", DS_7="undetermined")
    out = printed(capsys, [table])
    order = [line.split()[0] for line in out.splitlines() if line.startswith((" PC-", " TB-", " CC-", " DS-"))]
    assert order == ["DS-2", "TB-11", "CC-1"]
    assert "13 laws hold within these runs (--all: how often each was judged): PC-1, PC-2," in out
    assert "TB-11 is bent by append_guard = per_group of the followed profile (docs/laws.md)" in out
    assert f"undetermined, {NEVER}: DS-7\n" in out
    assert legends.UNDETERMINED in out.replace("\n", " ")
    assert " PC-13   holds 17 " in printed(capsys, [table], everything=True)
    assert "weak evidence" not in out
    assert "verdict: refuted: vLLM 1.0: DS-2" in out


def test_laws_that_were_judged_a_few_times_are_marked(capsys):
    """In the table and in the line of what holds; a refuted law needs no second judgement."""
    many = rows_of("1.0", **{f"PC_{number}": "holds" for number in range(1, 14)}, TB_11="declared", DS_2="refuted")
    few = [evolve(row, judged=2, broken=2 * (row.law == "DS-2"), declared=row.law == "TB-11") for row in many.rows]
    out = printed(capsys, [many, evolve(many, version="2.0", rows=(few[0], *many.rows[1:-2], *few[-2:]))])
    assert "PC-1*, PC-2, " in out
    assert "declared 1 of 2*" in out
    assert "refuted 2 of 2 " in out
    assert f"\n{legends.FEW_WORDS}\n" in out


def test_a_run_that_ended_early_says_who_judges_it_and_where_it_was(capsys):
    failures = (("--scope fa4 --seed 0 --case 0", "AssertionError (no message), at vllm/v1/request.py:3 in append"),)
    table = evolve(rows_of("1.0", PC_1="holds"), failures=failures, differing={"fa4": 1}, kinds={"step": 2, "Drain.keys": 9})
    out = printed(capsys, [table])
    assert "1 run ended early, the first (--scope fa4 --seed 0 --case 0): AssertionError (no message), at vllm/v1" in out
    assert "LV-9 would judge it and was not asked for: --law LV-9" in out
    assert (
        "1 of 1 runs do something that the profile vllm-0.33.0 does not predict (no violation): Drain.keys 9 times, step 2"
        in out
    )
    assert "LV-9 judges it" in printed(capsys, [evolve(rows_of("1.0", LV_9="refuted"), failures=failures)])


def test_nothing_is_tabled_of_a_release_that_cannot_be_run(capsys):
    out = printed(capsys, [evolve(rows_of("1.0", PC_1="undetermined"), unusable="it is torn", runs=0)])
    assert "cannot be run: it is torn" in out
    assert "PC-1" not in out


def test_what_cannot_be_run_is_undetermined(capsys):
    code, out, _ = run(capsys, "--version", "3.0")
    assert code == ExitCode.UNDETERMINED
    assert "scope fa4-m4 cannot be run: no such group" in out


def test_json_is_the_same_for_the_same_seed(capsys):
    first = run(capsys, "--version", "2.0", "--json")[1]
    assert first == run(capsys, "--version", "2.0", "--json")[1]
    document = json.loads(first)
    (release,) = document["releases"]
    assert release["laws"][0]["verdict"] == "refuted"
    assert release["findings"][0]["case"]["format"] == "kvproof-conform-case"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name what to judge by one of"),
        (["--version", "1.0", "--installed"], "name what to judge by one of"),
        (["--base", "1.0"], "--base and --head go together"),
        (["--version", "9.9"], "pip offers no vLLM 9.9"),
        (["--version", "1.0", "--version", "2.0"], "name several releases by --versions 1.0,2.0"),
        (["--path", "a", "--path", "b"], "--path is given 2 times"),
        (["--version", "1.0", "--baseline", "nowhere.json"], "cannot be read"),
        (["--version", "1.0", "--script", "nowhere.json"], "cannot be read"),
        (["--versions", "1.0,9.9"], "pip offers no vLLM 9.9"),
    ],
)
def test_what_the_user_can_put_right_is_an_error(capsys, words, message):
    code, _, err = run(capsys, *words)
    assert code == ExitCode.ERROR
    assert message in err


def test_scopes_are_listed_with_what_they_leave_out(capsys):
    assert main(["conform", "vllm", "--scope", "list"]) == ExitCode.HOLDS
    out = capsys.readouterr().out
    assert "leaves out" in out
    assert "no scope has" in out


def test_an_adapter_that_is_not_there_is_an_error(capsys):
    assert main(["conform", "adapter", "kvproof.nowhere:Thing"]) == ExitCode.ERROR
    assert main(["conform", "adapter", "kvproof.spec.exits:Nothing"]) == ExitCode.ERROR
    assert main(["conform", "adapter", "kvproof"]) == ExitCode.ERROR
    assert "MODULE" not in capsys.readouterr().out


MODULES = {
    "raises": "raise RuntimeError('boom')",
    "torn": "def (",
    "ends": "import sys; sys.exit(0)",
    "number": "thing = 5",
    "nameless": "class thing:\n name = None; shows = frozenset(); null_block = 0; start = perform = None",
    "wordless": "class thing:\n name = 'a'; shows = frozenset(); null_block = 'x'; start = perform = None",
    "uncalled": "class thing:\n name = 'a'; shows = frozenset(); null_block = 0; start = perform = None",
    "needs": "class thing:\n def __init__(self, size): ...",
    "leaves": "import sys\ndef thing(): sys.exit(0)",
    "odd": "class thing:\n def __getattr__(self, name): raise ValueError('evil')",
    "twice": "class one:\n name = 'a'; shows = frozenset(); null_block = 0; start = perform = None\ndef thing(): return one",
    "silent": "from tests.spec.vllm.test_conform_command import Silent as thing",
}
"""What MODULE:ATTRIBUTE may turn out to be, none of it an adapter that can be judged."""


class Silent:
    """Declares tables and shows none."""

    name, null_block, shows = "silent", 0, frozenset({Shows.TABLES})

    def start(self, config):
        pass

    def perform(self, action):
        return Observation()


class Stillborn(Silent):
    """Cannot be started."""

    name, shows = "stillborn", frozenset()

    def start(self, config):
        raise RuntimeError("no memory")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("uncalled", "the adapter's start is None: a method is needed"),
        ("raises", "cannot be imported: RuntimeError: boom"),
        ("torn", "cannot be imported: SyntaxError"),
        ("ends", "ended the program (exit status 0) when it was imported"),
        ("number", "int is no adapter"),
        ("nameless", "the adapter's name is None"),
        ("wordless", "null_block is 'x'"),
        ("needs", "cannot be called without arguments: TypeError"),
        ("leaves", "ended the program (exit status 0) instead of returning an adapter"),
        ("odd", "its name raises ValueError: evil"),
        ("twice", "one is a class: an adapter is an object, such as one()"),
        ("silent", "declares tables and does not show it"),
    ],
)
def test_what_is_no_adapter_is_an_error_that_says_so(name, words, tmp_path, monkeypatch, capsys):
    (tmp_path / f"{name}_module.py").write_text(MODULES[name])
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["conform", "adapter", f"{name}_module:thing", "--scope", "fa4"]) == ExitCode.ERROR
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err


class Adapter:
    """Something that has a method `perform`, which is never called here."""

    def perform(self, action):
        raise AssertionError(action)


def judged_as(monkeypatch, verdicts, problems=()):
    """Let the call that judges an adapter return these verdicts; return the arguments it is called with."""
    called = []

    def check_all_laws(adapter, **options):
        called.append((adapter, options))
        found = [reports.LawVerdict(law, "a sentence", verdict, "a reason") for law, verdict in verdicts.items()]
        return reports.Report("pretended", 0, (), tuple(found), problems=problems)

    monkeypatch.setattr(api, "check_all_laws", check_all_laws)
    return called


def test_an_adapter_is_judged_and_the_worst_verdict_decides(monkeypatch, capsys):
    holds, refuted, unknown = Verdict.HOLDS, Verdict.REFUTED, Verdict.UNDETERMINED
    target = "tests.spec.vllm.test_conform_command:Adapter"
    monkeypatch.setattr(_conform_adapter, "_loaded", lambda name: Adapter() if name == target else None)
    called = judged_as(monkeypatch, {"PC-1": holds, "PC-2": refuted})
    assert main(["conform", "adapter", target, "--seed", "3", "--law", "PC", "--policy", "a=b"]) == ExitCode.REFUTED
    ((adapter, options),) = called
    assert isinstance(adapter, Adapter)
    assert (options["seed"], options["laws"], options["policies"]) == (3, ("PC",), ("a=b",))
    judged_as(monkeypatch, {"PC-1": holds, "PC-2": unknown})
    assert main(["conform", "adapter", target]) == ExitCode.HOLDS
    assert main(["conform", "adapter", target, "--law", "PC"]) == ExitCode.UNDETERMINED
    judged_as(monkeypatch, {"PC-2": unknown})
    assert main(["conform", "adapter", target]) == ExitCode.UNDETERMINED
    assert "PC-2" in capsys.readouterr().out
    judged_as(monkeypatch, {"PC-1": holds}, ("a walk ended early",))
    assert main(["conform", "adapter", target]) == ExitCode.UNDETERMINED


def test_the_verdict_is_in_words_and_the_last_line_gives_the_first_refuted_law_again(monkeypatch, capsys, tmp_path):
    holds, refuted, unknown = Verdict.HOLDS, Verdict.REFUTED, Verdict.UNDETERMINED
    monkeypatch.setattr(_conform_adapter, "_loaded", lambda name: Adapter())

    def said(verdicts, *words, problems=()):
        judged_as(monkeypatch, verdicts, problems)
        main(["conform", "adapter", "my.module:Mine", *words])
        return capsys.readouterr().out.splitlines()[-2:]

    assert said({"PC-1": holds, "PC-2": unknown}, "--scope", "fa4", "--no-isolation") == [
        "verdict: nothing refuted: 1 law held where they were judged, 1 law undetermined: nothing is said of them",
        "kvproof conform adapter my.module:Mine --seed 0 --scope fa4 --no-isolation",
    ]
    assert said({"PC-1": holds, "PC-2": refuted, "PC-3": refuted}, "--walks", "4", "--policy", "a=b c") == [
        "verdict: refuted (2 laws); 1 held where they were judged, none undetermined",
        "kvproof conform adapter my.module:Mine --seed 0 --law PC-3 --walks 4 --policy 'a=b c'",
    ]
    assert said({"PC-1": unknown})[0] == "verdict: undetermined: 1 law undetermined: nothing is said of them"
    assert said({"PC-1": refuted, "PC-2": holds}, problems=("fa4: it could not be judged any further",))[0].startswith(
        "verdict: refuted (1 law); 1 held where they were judged"
    )
    assert "not everything could be judged" in said({"PC-1": holds}, problems=("a walk ended early",))[0]


def test_the_report_on_an_adapter_is_written_and_its_last_line_reproduces(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(_conform_adapter, "path_needed", lambda module: "")
    target = "tests.spec.vllm.test_conform_command:Stillborn"
    words = ["conform", "adapter", target, "--scope", "fa4", "--walks", "1", "--steps", "5"]
    assert main([*words, "--report", str(tmp_path / "new")]) == ExitCode.REFUTED
    out = capsys.readouterr().out
    forms = [f"stillborn-LV-9.{suffix}" for suffix in ("html", "json", "md", "reviewer.md", "svg")]
    written = ["index.html", *forms, "stillborn.html", "stillborn.json", "stillborn.txt"]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == written
    assert all(f"file: {tmp_path / 'new' / name}" in out for name in written)
    last = out.splitlines()[-1]
    assert last == f"kvproof conform adapter {target} --seed 0 --law LV-9 --scope fa4 --walks 1 --steps 5"
    assert main(last.split()[1:]) == ExitCode.REFUTED
    assert main(["report", str(tmp_path / "new" / "stillborn-LV-9.json")]) == ExitCode.HOLDS
    again = "check_all_laws(adapter, laws=['LV-9'], scopes=['fa4'], seed=0, walks=1, steps=5)"
    assert capsys.readouterr().out.splitlines()[-1] == again
    page = (tmp_path / "new" / "stillborn-LV-9.md").read_text()
    assert page.splitlines()[-1] == f"    {again}"
    report = eval(again, {"check_all_laws": api.check_all_laws, "adapter": Stillborn()})
    assert [law.law for law in report.refuted] == ["LV-9"]
    (tmp_path / "file").write_text("")
    assert main([*words, "--report", str(tmp_path / "file")]) == ExitCode.ERROR


def test_the_last_line_has_the_path_by_which_the_module_was_found(tmp_path, monkeypatch):
    """Of `PYTHONPATH` as it is set, of the current folder by a point; an installed module needs none."""
    for name in ("by_path", "by_place", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}_module.py").write_text("thing = 1")
        monkeypatch.syspath_prepend(str(tmp_path / name))
        _conform_adapter._loaded(f"{name}_module:thing")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(("nowhere", str(tmp_path / "by_path"))))
    monkeypatch.chdir(tmp_path / "by_place")
    assert _conform_adapter.path_needed("by_path_module") == os.environ["PYTHONPATH"]
    assert _conform_adapter.path_needed("by_place_module") == "."
    assert _conform_adapter.path_needed("elsewhere_module") == ""
    assert _conform_adapter.path_needed("json.decoder") == ""
    assert _conform_adapter.path_needed("sys") == ""
    (tmp_path / "by_place" / "pack").mkdir()
    (tmp_path / "by_place" / "pack" / "inner.py").write_text("thing = 1")
    _conform_adapter._loaded("pack.inner:thing")
    assert _conform_adapter.path_needed("pack.inner") == "."


def test_an_attribute_is_an_adapter_or_makes_one():
    assert _conform_adapter._loaded("kvproof.spec.exits:ExitCode.HOLDS") == ExitCode.HOLDS
    with pytest.raises(UserError, match=r"is a path; name the module by dots, such as examples\.adapter:Thing"):
        _conform_adapter._loaded("./examples/adapter.py:Thing")
    with pytest.raises(UserError, match=r"\.own is relative"):
        _conform_adapter._loaded(".own:Thing")
    with pytest.raises(UserError, match=r"no module kvproof\.nowhere"):
        _conform_adapter._loaded("kvproof.nowhere:Thing")


def test_missing_packages_are_said_before_anything_is_fetched(monkeypatch, capsys):
    monkeypatch.setattr(process, "missing_packages", lambda: ("torch", "zmq"))
    monkeypatch.setattr(releases, "find", lambda *words, **options: pytest.fail("fetched"))
    assert main(["conform", "vllm", "--version", "1.0"]) == ExitCode.ERROR
    err = capsys.readouterr().err
    assert "this Python lacks: torch, zmq" in err
    assert err.index("torch --index-url https://download.pytorch.org/whl/cpu") < err.index(
        "-c requirements/lock.txt -e '.[vllm]'"
    )
