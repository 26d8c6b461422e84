"""Releases side by side: the same cases for every one, tables, smallest cases, comparison, baselines."""

import contextlib
import datetime
import json
from pathlib import Path

import pytest
from attrs import evolve
from msgspec import structs

from kvproof.spec import laws
from kvproof.spec.exits import ExitCode, UserError
from kvproof.spec.vllm import baseline, configurations, matrix, pages, shrink, verdicts
from kvproof.spec.vllm.matrix import Options
from kvproof.spec.vllm.process import ReleaseRaised
from kvproof.spec.vllm.releases import Release
from kvproof.spec.vllm.runs import Breach, Outcome
from kvproof.spec.vllm.verdicts import Finding, Tally

from .fake_release import FakeRelease
from .pretending import Pretended, Raising, opened

TODAY = datetime.date(2026, 12, 1)
QUICK = Options(steps=30, scope="fa4-m4", laws=("PC-3", "LV-9"), shrink_runs=3)


def release(version):
    return Release(version, Path("nowhere"), "download", "pretended")


def judged(options, hows, entries=None):
    runner = opened(hows)
    return matrix.judge(options, [release(version) for version in hows], entries or {}, TODAY, open_runner=runner)


def verdict_of(table, law):
    row = table.row(law)
    assert row is not None
    return row.verdict


def test_the_plan_is_the_same_for_the_same_seed_and_goes_through_the_scopes():
    plan = matrix.plan(Options(steps=4000))
    assert plan == matrix.plan(Options(steps=4000))
    assert plan != matrix.plan(Options(steps=4000, seed=1))
    names = [case.scope.name for case in plan]
    assert len(set(names[:27])) == 27
    rounds = [names[at : at + 27] for at in range(0, len(names), 27)]
    drawn = [any(name.startswith("random-") for name in found) for found in rounds]
    assert drawn == [number >= matrix.NAMED_ROUNDS and not number % 2 for number in range(len(rounds))]


def test_one_case_of_a_plan_is_run_again_by_its_number():
    plan = matrix.plan(Options(steps=300, scope="fa4-m4-n2", seed=5))
    for number, case in enumerate(plan):
        assert matrix.plan(Options(scope="fa4-m4-n2", seed=5, number=number)) == (case,)
        assert case.origin == f"--scope fa4-m4-n2 --seed 5 --case {number}"


def test_deep_runs_draw_scopes_at_random_that_can_be_named_again():
    plan = matrix.plan(Options(steps=9000))
    random = [case for case in plan if case.scope.name.startswith("random-")]
    assert len(random) > 20
    case = random[0]
    number = int(case.origin.rpartition(" ")[2])
    assert matrix.plan(Options(scope=case.scope.name, number=number)) == (case,)


def test_an_unknown_law_or_scope_is_named():
    with pytest.raises(UserError, match="no law 'PC-33'"):
        matrix.chosen_laws(("PC-33",))
    with pytest.raises(UserError, match="no scope"):
        matrix.plan(Options(scope="fa4-m5"))
    assert {law.id for law in matrix.chosen_laws(("HO", "PC-1"))} == {law.id for law in laws.ALL if law.id[:2] == "HO"} | {
        "PC-1"
    }


def test_a_release_that_holds_and_one_that_does_not():
    good, bad = judged(QUICK, {"1.0": "holds", "2.0": "broken"})
    assert verdict_of(good, "PC-3") == "holds"
    assert good.verdict() is ExitCode.HOLDS
    assert bad.refuted == ["PC-3"]
    assert bad.verdict() is ExitCode.REFUTED
    (finding,) = bad.findings
    assert finding.outcome is not None
    assert finding.outcome.lines
    assert bad.runs == good.runs == len(matrix.plan(QUICK))


@pytest.mark.parametrize("how", ["hangs", "crashes"])
def test_a_hang_or_a_crash_refutes(how):
    (table,) = judged(QUICK, {"1.0": how})
    assert table.refuted == ["LV-9"]
    assert table.failures


def test_what_cannot_be_run_is_undetermined():
    (table,) = judged(QUICK, {"1.0": "unsupported"})
    assert table.verdict() is ExitCode.UNDETERMINED
    assert table.unsupported == {"fa4-m4": "no such group"}
    (table,) = judged(QUICK, {"1.0": "unusable"})
    assert table.verdict() is ExitCode.UNDETERMINED
    assert "torch" in table.unusable


def test_a_law_that_was_never_judged_is_undetermined_if_it_is_asked_for():
    (table,) = judged(Options(steps=30, scope="fa4-m4", laws=("CP-6",)), {"1.0": "holds"})
    assert verdict_of(table, "CP-6") == "undetermined"
    assert table.verdict(("CP-6",)) is ExitCode.UNDETERMINED
    assert table.verdict() is ExitCode.HOLDS


def test_head_fails_only_on_what_is_new():
    runner = opened({"1.0": "broken", "2.0": "broken", "3.0": "holds"})
    old, new, good = judged(QUICK, {"1.0": "broken", "2.0": "broken", "3.0": "holds"})
    assert matrix.compare(old, new, release("1.0"), open_runner=runner).new == {}
    assert matrix.compare(good, new, release("3.0"), open_runner=runner).new == {"PC-3": "3.0 is not refuted by it"}
    assert matrix.compare(new, good, release("2.0"), open_runner=runner).new == {}


def test_a_violation_of_another_kind_is_new_although_the_law_was_broken_before():
    _, head = judged(QUICK, {"1.0": "broken", "2.0": "broken"})
    # the base breaks the law somewhere, but not in the smallest case of the head
    compared = matrix.compare(head, head, release("9.0"), open_runner=opened({"9.0": "holds"}))
    assert compared.new == {"PC-3": f"its smallest case does not break the law on {head.version}"}


def entry(**changes):
    fields = {
        "law": "PC-3",
        "condition": {"message": "references"},
        "source": "docs/findings/example.md",
        "versions": ["2.0"],
        "expires": "2100-01-01",
        "witness": {"scope": "fa4-m4", "script": [["step"]]},
    }
    data = {"format": baseline.FORMAT, "version": 1, "entries": [fields | changes]}
    return baseline.parsed(json.dumps(data).encode(), "some.json", laws.ALL)


def test_a_declared_violation_does_not_fail():
    (table,) = judged(QUICK, {"2.0": "broken"}, {"2.0": entry()})
    assert verdict_of(table, "PC-3") == "declared"
    assert table.verdict() is ExitCode.HOLDS
    assert table.findings == ()


def test_an_entry_that_excuses_nothing_of_this_kind_changes_nothing():
    (table,) = judged(QUICK, {"2.0": "broken"}, {"2.0": entry(condition={"message": "another sentence"})})
    assert verdict_of(table, "PC-3") == "refuted"


def test_a_stale_entry_is_named_and_undetermined():
    (table,) = judged(QUICK, {"2.0": "holds"}, {"2.0": entry()})
    assert table.verdict() is ExitCode.UNDETERMINED
    assert "PC-3 (docs/findings/example.md): its witness does not break the law any more" in table.stale


def test_an_expired_entry_is_named_and_undetermined():
    (table,) = judged(QUICK, {"2.0": "broken"}, {"2.0": entry(expires="2026-12-01")})
    assert table.verdict() is ExitCode.UNDETERMINED
    assert table.expired == ("PC-3 (docs/findings/example.md) of 2026-12-01",)


def test_a_report_has_a_page_a_script_and_the_recording(tmp_path):
    (table,) = judged(QUICK, {"2.0": "broken"})
    (page,) = pages.write(table, tmp_path, "--version 2.0")
    assert sorted(file.name for file in page.parent.iterdir()) == ["PC-3.md", "PC-3.ndjson.gz", "PC-3.script.json"]
    text = page.read_text()
    for part in ("# PC-3 does not hold on vLLM 2.0", "## Geometry", "## Operations", "## Expected and actual", "Law PC-3"):
        assert part in text
    assert (
        text.splitlines()[-1].strip()
        == f"kvproof conform vllm --version 2.0 --script {page.parent / 'PC-3.script.json'} --law PC-3"
    )
    again = pages.write(table, tmp_path / "again", "--version 2.0")
    assert (again[0].parent / "PC-3.ndjson.gz").read_bytes() == (page.parent / "PC-3.ndjson.gz").read_bytes()


def test_the_bound_of_runs_while_shrinking_is_kept():
    assert matrix.QUICK_SHRINK_RUNS < shrink.MAX_RUNS == matrix.SHRINK_RUNS
    assert matrix.shrink_runs(False, 1) == matrix.SHRINK_RUNS
    assert matrix.shrink_runs(False, 2) == matrix.SHRINK_RUNS // 2
    assert matrix.shrink_runs(True, 9) == matrix.LEAST_SHRINK_RUNS


def test_a_law_is_broken_at_most_as_often_as_it_is_judged():
    case = matrix.plan(QUICK)[0]
    said = [Breach("PC-3", 5, f"block {block}", moment=9) for block in range(7)]
    said += [Breach("PC-3", 5, "bent", bent=True, moment=9), Breach("PC-3", 8, "bent", bent=True, moment=12)]
    said += [Breach("PC-3", 9, "bent", bent=True, moment=at) for at in (14, 14, 15)]
    tally = Tally("2.0", matrix.chosen_laws(("PC-3",)))
    tally.add(Outcome(case, operations=9, premises={"PC-3": 4}, breaches=tuple(said)))
    (row,) = tally.rows()
    assert (row.verdict, row.judged, row.broken, row.bent, row.declared) == ("refuted", 4, 1, 3, 0)


def test_what_the_profile_does_not_predict_is_counted_by_kind():
    case = matrix.plan(QUICK)[0]
    tally = Tally("2.0", matrix.chosen_laws(("PC-3",)))
    for kinds in ({"Output.keys": 2}, {"Output.keys": 3, "step": 1}, {}):
        tally.add(Outcome(case, differences=kinds))
    table = verdicts.table(tally, "", (), (), ())
    assert table.kinds == {"Output.keys": 5, "step": 1}
    assert table.differing == {case.scope.name: 2}
    assert pages.as_dict(table)["differences"] == {"Output.keys": 5, "step": 1}


def found(law, scope="fa4-m4", lines=b"", values=(), origin="--scope fa4-m4 --seed 0 --case 0"):
    case = matrix.plan(Options(steps=30, scope=scope))[0]
    breach = Breach(law, 0, "it is wrong", values)
    return Finding(law, breach, origin, case, Outcome(case, lines=lines, breaches=(breach,)))


def test_a_page_says_the_values_the_letters_and_what_the_release_derives():
    header = matrix.plan(Options(steps=30, scope="fa4-m4"))[0].scope.header()
    own = {**header, "fine_grained_hits": not header["fine_grained_hits"]}
    row = {"i": 0, "op": "init", "args": {}, "result": {"new": ["x" * 900]}}
    lines = b"\n".join(json.dumps(part).encode() for part in ({"config": own}, row))
    first = found("HB-11", lines=lines, values=(("expected", "True"), ("actual", "False")))
    other = found("LV-5")
    table = evolve(verdicts.table(Tally("2.0", ()), "", (), (), ()), findings=(first, other))
    text = pages.page(first, table, "again")
    assert "Expected: `True`\n\nActual: `False`" in text
    assert "(docs/semantics.md, section 2.4)" in text
    assert "N: `decode_context_parallel_size`" in text
    said = [json.dumps(value) for value in (own["fine_grained_hits"], header["fine_grained_hits"])]
    assert f"- fine_grained_hits: {said[0]}, by the semantics {said[1]}" in text
    assert "The same generated case refutes LV-5, too" in text
    assert "more characters) |" in text
    alone = pages.page(found("LV-5"), evolve(table, findings=(other,)), "again")
    assert "Actual: it is wrong." in alone
    assert "share one cause" not in alone
    assert "The release itself derives" not in alone


def test_a_smallest_case_of_another_configuration_has_another_name():
    finding = found("PC-3")
    assert finding.case is not None
    assert finding.outcome is not None
    scope = finding.case.scope
    smaller = evolve(finding.case, scope=evolve(scope, config=structs.replace(scope.config, num_device_blocks=9)))

    def play(case):
        assert finding.outcome is not None
        return Outcome(case, breaches=finding.outcome.breaches)

    assert matrix._named(play, play(smaller), finding).case.scope.name == f"smaller-than-{scope.name}"
    assert matrix._named(play, play(finding.case), finding).case.scope.name == scope.name
    lost = matrix._named(lambda case: Outcome(case), play(smaller), finding)
    assert lost.case == smaller


# --- entries with a witness of rows, and of exceptions ---------------------------------------------------------------


class NoGuard(FakeRelease):
    """An append goes on into the next row."""

    def write(self, widths, counts, flat, row, blocks):
        for group, ids in enumerate(blocks):
            self.put(widths[group], counts[group], flat[group], row, ids)
        return ""


class GuardBefore(FakeRelease):
    """All groups are compared before anything is written."""

    def write(self, widths, counts, flat, row, blocks):
        sizes = zip(widths, counts, blocks, strict=True)
        if any(count[row] + len(ids) > width for width, count, ids in sizes):
            return "too long"
        return super().write(widths, counts, flat, row, blocks)


class Rows(Pretended):
    """Plays a recording that holds, and its rows are those of a release."""

    def __init__(self, release):
        super().__init__("holds")
        self.release = release

    def geometry(self, config):
        return self.release.geometry(config)

    def rows(self, config, appends):
        return self.release.rows(config, appends)


def opening(runner):
    @contextlib.contextmanager
    def open_runner(release):
        yield runner

    return open_runner


ROWS = Options(steps=1, laws=("TB-11",))
(GUARD,) = (one for one in baseline.shipped(laws.ALL) if one.law == "TB-11")


@pytest.fixture
def few(monkeypatch):
    """The other subjects are asked under a few generated configurations."""
    monkeypatch.setattr(configurations, "everything", lambda seed, count, quick: configurations.generated(seed, 12))


def judged_rows(fake, *entries, runner=Rows):
    version = release("0.33.0")
    (table,) = matrix.judge(ROWS, [version], {"0.33.0": entries}, TODAY, open_runner=opening(runner(fake)))
    return table


def test_a_violation_of_rows_is_declared_by_an_entry_and_bent_without_one(few):
    table = judged_rows(FakeRelease(), GUARD)
    row = table.row("TB-11")
    assert row is not None
    assert (row.verdict, row.broken, row.bent, table.stale) == ("declared", 0, 0, ())
    assert row.declared >= 10
    plain = judged_rows(FakeRelease()).row("TB-11")
    assert plain is not None
    assert (plain.verdict, plain.bent, plain.declared) == ("bent", row.declared, 0)
    assert plain.judged == row.judged


def test_an_entry_of_rows_that_nothing_shows_any_more_is_stale(few):
    table = judged_rows(GuardBefore(), GUARD)
    assert verdict_of(table, "TB-11") == "holds"
    assert table.stale == (f"{GUARD.name}: its witness does not break the law any more",)
    assert table.verdict() is ExitCode.UNDETERMINED


def test_an_entry_of_rows_declares_nothing_else(few):
    table = judged_rows(NoGuard(), GUARD)
    assert table.refuted == ["TB-11"]
    assert table.stale == (f"{GUARD.name}: its witness breaks the law outside its condition",)
    (finding,) = table.findings
    assert finding.breach.message == "an append past the end of a row was accepted"


class RowsRaise(Rows):
    """The rows cannot be filled."""

    def rows(self, config, appends):
        raise ReleaseRaised(version="0", doing="rows", text="TypeError: no such tables")


def test_rows_that_cannot_be_asked_for_make_their_entry_stale(few):
    table = judged_rows(FakeRelease(), GUARD, runner=RowsRaise)
    (said,) = table.stale
    assert said.startswith(f"{GUARD.name}: its witness cannot be run: ")
    assert "no such tables" in said
    assert verdict_of(table, "TB-11") == "undetermined"


@pytest.mark.parametrize(
    ("statement", "function", "verdict"),
    [
        ("assert num_new_tokens == 1 + self.num_spec_tokens", "schedule", "declared"),
        ("assert num_new_tokens > 0", "schedule", "refuted"),
        ("assert num_new_tokens == 1 + self.num_spec_tokens", "update_from_output", "refuted"),
    ],
)
def test_another_assertion_than_the_declared_one_is_refuted(statement, function, verdict):
    (padded,) = (one for one in baseline.shipped(laws.ALL) if one.source == "docs/findings/padded-threshold.md")
    options = Options(case=padded.witness.case(""), laws=("LV-9",))
    runner = opening(Raising(statement, function))
    (table,) = matrix.judge(options, [release("0.33.0")], {"0.33.0": [padded]}, TODAY, open_runner=runner)
    assert verdict_of(table, "LV-9") == verdict
    assert bool(table.stale) == (verdict == "refuted")
