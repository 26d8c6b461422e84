"""What comes of one case: judged lines, and every way in which a process may fail."""

import pytest
from attrs import evolve

from kvproof.spec import laws
from kvproof.spec.exits import UserError
from kvproof.spec.traces import read
from kvproof.spec.vllm import runs, scopes, scripts
from kvproof.spec.vllm.process import ReleaseUnusable
from kvproof.spec.vllm.runs import Case

from .pretending import Pretended, Raising

SCOPE = scopes.by_name("fa4-m4")
CASE = Case(SCOPE, scripts.generate(SCOPE.config, "0", 10), "--scope fa4-m4 --seed 0 --case 0")


def test_a_run_that_holds_is_judged_without_a_breach():
    runner = Pretended("holds")
    outcome = runs.play(runner, CASE, laws.ALL, keep=True)
    assert [breach.law for breach in outcome.breaches if not breach.bent] == []
    assert (outcome.failure, outcome.problem, outcome.unsupported) == ("", "", "")
    assert outcome.premises["PC-3"] > 50
    assert outcome.steps == 40
    assert outcome.operations == len(read.read_bytes(outcome.lines, "again").operations)
    ((config, script, options),) = runner.asked
    assert config == SCOPE.header()
    assert scripts.checked(script) == CASE.script
    assert options == {"call_states": True}


def test_the_recording_is_kept_only_where_it_is_asked_for():
    assert runs.play(Pretended("holds"), CASE, laws.ALL).lines == b""


def test_a_broken_law_is_a_breach_with_its_operation_and_values():
    outcome = runs.play(Pretended("broken"), CASE, laws.ALL)
    breach = outcome.broken("PC-3")
    assert breach is not None
    assert breach.operation == 60
    assert dict(breach.values)["block"] == "3"
    assert outcome.broken("HO-1") is None


def test_a_difference_makes_later_breaches_inexact():
    breach = runs.play(Pretended("broken"), CASE, laws.ALL).broken("PC-3")
    assert breach is not None
    assert not breach.exact


@pytest.mark.parametrize(("how", "word"), [("hangs", "hung"), ("crashes", "crashed")])
def test_a_hang_and_a_crash_break_the_law_that_nothing_ends_in_an_error(how, word):
    outcome = runs.play(Pretended(how), CASE, laws.ALL)
    breach = outcome.broken("LV-9")
    assert breach is not None
    assert word in breach.message
    assert outcome.failure


def test_an_exception_tells_the_function_that_raised_and_its_statement():
    breach = runs.play(Raising("assert count == 3"), CASE, laws.ALL).broken("LV-9")
    assert breach is not None
    values = dict(breach.values)
    assert values["raised"] == "'AssertionError: '"
    assert (values["raised_by"], values["statement"]) == ("vllm/v1/core/sched/scheduler.py in schedule", "assert count == 3")


def test_what_a_release_cannot_run_is_no_breach():
    outcome = runs.play(Pretended("unsupported"), CASE, laws.ALL)
    assert outcome.unsupported == "no such group"
    assert outcome.breaches == ()
    raised = runs.play(Pretended("raises"), CASE, laws.ALL)
    assert raised.unsupported == "ValueError: no such thing"


def test_a_release_that_cannot_be_driven_at_all_is_told():
    with pytest.raises(ReleaseUnusable):
        runs.play(Pretended("unusable"), CASE, laws.ALL)


def test_a_recording_that_cannot_be_read_is_a_problem_and_no_verdict():
    class Cut(Pretended):
        def run(self, config, script, **options):
            yield from list(super().run(config, script, **options))[:-5]
            yield {"end": {"steps": 1}}

    outcome = runs.play(Cut("holds"), CASE, laws.ALL)
    assert "cannot be read" in outcome.problem
    assert outcome.breaches == ()


def test_a_case_is_read_back_from_its_file(tmp_path):
    import json

    again = runs.from_json(json.dumps(CASE.as_json() | {"law": "X-1"}).encode(), "case.json")
    assert (again.scope.config, again.script) == (CASE.scope.config, CASE.script)
    assert again.origin == "--script case.json"


@pytest.mark.parametrize("data", [b"{}", b"no", b'{"format":"kv-trace","version":1,"scope":"x","config":{},"script":[]}'])
def test_another_file_is_no_case(data):
    with pytest.raises(UserError, match=r"case\.json"):
        runs.from_json(data, "case.json")


def test_older_releases_are_followed_with_the_tail_of_the_whole_prompt():
    assert runs.followed("0.33.0") == runs.followed("0.32.1rc1") == runs.followed("unknown") == runs.FOLLOWED
    assert runs.followed("1.0") == runs.FOLLOWED
    old = runs.followed("0.31.0")
    assert old == runs.followed("0.9.2+cpu")
    assert (old.prompt_tail, evolve(old, name="", prompt_tail="P-1")) == ("P", evolve(runs.FOLLOWED, name=""))
