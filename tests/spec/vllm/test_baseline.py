"""Declared deviations: read strictly, excuse exactly what they name, and are known to be stale or late."""

import datetime
import json

import pytest
from attrs import evolve

from kvproof.spec import laws
from kvproof.spec.vllm import baseline, scopes
from kvproof.spec.vllm.runs import Breach

LAWS = {law.id: law for law in laws.ALL}
RECURRENT = scopes.by_name("fa4-m4-n2").config
PLAIN = scopes.by_name("fa4-tiny").config
BENT = Breach("CC-1", 5, "a read finds another prefix", bent=True, exact=True)


def entry(**changes):
    fields = {
        "law": "CC-1",
        "condition": {"profile": "clip_stops=clip_unit"},
        "source": "docs/findings/example.md",
        "versions": ["0.33.0"],
        "expires": "2100-01-01",
        "witness": {"scope": "fa4-m4-n2", "script": [["step"]]},
    }
    return fields | changes


def parsed(*entries):
    data = json.dumps({"format": baseline.FORMAT, "version": 1, "entries": entries}).encode()
    return baseline.parsed(data, "some.json", laws.ALL)


def test_the_shipped_files_are_well_formed():
    for one in baseline.shipped(laws.ALL):
        assert one.versions
        assert one.source


def test_a_profile_condition_needs_that_the_profile_explains_the_violation():
    (one,) = parsed(entry())
    assert one.excuses(RECURRENT, BENT, LAWS)
    assert not one.excuses(RECURRENT, evolve(BENT, bent=False), LAWS)
    assert not one.excuses(RECURRENT, evolve(BENT, law="CC-2"), LAWS)


def test_facts_of_the_configuration_must_all_be_there():
    (one,) = parsed(entry(condition={"config": {"recurrent": [True], "ranks": [2, 4]}}))
    assert one.excuses(RECURRENT, BENT, LAWS)
    assert not one.excuses(PLAIN, BENT, LAWS)
    (one,) = parsed(entry(condition={"config": {"recurrent": [True], "ranks": [8]}}))
    assert not one.excuses(RECURRENT, BENT, LAWS)


def test_a_part_of_the_message_narrows_an_entry():
    (one,) = parsed(entry(condition={"message": "another prefix"}))
    assert one.excuses(RECURRENT, BENT, LAWS)
    assert not one.excuses(RECURRENT, evolve(BENT, message="a block is lost"), LAWS)


def test_where_a_prompt_ends_narrows_an_entry():
    (one,) = parsed(entry(condition={"prompt_ends": True}))
    whole = evolve(BENT, values=(("prompt", "(1, 2, 3, 4)"),))
    assert one.excuses(RECURRENT, whole, LAWS)
    assert not one.excuses(RECURRENT, evolve(BENT, values=(("prompt", "(1, 2, 3)"),)), LAWS)
    assert not one.excuses(RECURRENT, evolve(BENT, values=(("prompt", "(1, 2, ..."),)), LAWS)
    assert not one.excuses(RECURRENT, BENT, LAWS)


def raised(by, statement):
    values = (
        ("raised", "'AssertionError: '"),
        ("raised_by", f"vllm/v1/core/sched/scheduler.py in {by}"),
        ("statement", statement),
    )
    return Breach("LV-9", 18, "the engine ends in an exception", values)


def test_what_raised_narrows_an_entry():
    (one,) = parsed(entry(law="LV-9", condition={"raised_by": "vllm/v1/core/sched/scheduler.py in schedule"}))
    assert one.excuses(RECURRENT, raised("schedule", "assert a"), LAWS)
    assert not one.excuses(RECURRENT, raised("update", "assert a"), LAWS)
    assert not one.excuses(RECURRENT, evolve(raised("schedule", ""), values=(("raised", "'AssertionError: '"),)), LAWS)


def test_the_shipped_entry_of_a_padded_admission_declares_its_assertion_and_no_other():
    (one,) = (each for each in baseline.shipped(laws.ALL) if each.source == "docs/findings/padded-threshold.md")
    config = one.witness.case("").scope.config
    assert one.excuses(config, raised("schedule", "assert num_new_tokens == 1 + self.num_spec_tokens"), LAWS)
    assert not one.excuses(config, raised("schedule", "assert num_new_tokens > 0"), LAWS)
    assert not one.excuses(config, raised("update_from_output", "assert n == 1 + self.num_spec_tokens"), LAWS)
    assert not one.excuses(RECURRENT, raised("schedule", "assert num_new_tokens == 1 + self.num_spec_tokens"), LAWS)


APPEND = [0, [[1, 2, 3], [4]]]


def appending(*appends, **changes):
    return entry(law="TB-11", condition={"profile": "append_guard=per_group"}) | {
        "witness": {"scope": "fa4-m4-n2", "appends": list(appends), **changes}
    }


def test_a_witness_may_be_appends_to_rows():
    (one,) = parsed(appending(APPEND, [3, [[], [5]]]))
    arguments, actions = one.witness.rows(one.name)
    assert [action.row for action in actions] == [0, 3]
    assert actions[0].blocks == ((1, 2, 3), (4,))
    config = arguments.resolve()
    assert (config.dcp_size, config.max_running) == (2, RECURRENT.max_running)
    assert [group.kind for group in config.groups] == ["full_attention", "mamba_align"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (appending(), "appends"),
        (appending([0, [[1]]]), "append 0 has ids of 1 groups, the configuration has 2"),
        (appending(APPEND, [4, [[1], []]]), "append 1 goes to row 4; there are 4"),
        (appending([0, [[100_000], []]]), "append 0 has an id that is no block"),
        (appending(APPEND, script=[["step"]]), "a witness has a script or appends"),
        (appending(APPEND) | {"witness": {"scope": "fa4-m4-n2"}}, "a witness has a script or appends"),
        (appending(APPEND) | {"witness": {"scope": "fa4-m4-n2", "script": []}}, "no run shows a worker's rows"),
        (appending(APPEND) | {"law": "CC-1", "condition": {"message": "x"}}, "CC-1 is not judged on rows"),
    ],
)
def test_what_is_wrong_with_a_witness_of_rows_is_named(wrong, message):
    with pytest.raises(baseline.BaselineError, match=message):
        parsed(wrong)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"law": "XX-1"}, "no law is called XX-1"),
        ({"condition": {}}, "a condition is needed"),
        ({"condition": {"profile": "prompt_tail=P"}}, "does not bend CC-1"),
        ({"condition": {"config": {"colour": [1]}}}, "nothing is called colour"),
        ({"witness": {"script": [["step"]]}}, "a witness has a scope or a configuration"),
        ({"witness": {"scope": "nowhere", "script": [["step"]]}}, "no scope 'nowhere'"),
        ({"witness": {"scope": "fa4-m4", "script": [["stop"]]}}, "operation 0 of the script"),
        ({"versions": []}, "versions"),
        ({"expires": "soon"}, "expires"),
        ({"extra": 1}, "extra"),
    ],
)
def test_what_is_wrong_with_an_entry_is_named(changes, message):
    with pytest.raises(baseline.BaselineError, match=message):
        parsed(entry(**changes))


def test_another_format_is_refused(tmp_path):
    file = tmp_path / "b.json"
    file.write_text(json.dumps({"format": "kvproof-baseline", "version": 1, "entries": []}))
    with pytest.raises(baseline.BaselineError, match="need 'kvproof-conform-baseline'"):
        baseline.read(file, laws.ALL)
    with pytest.raises(baseline.BaselineError, match="cannot be read"):
        baseline.read(tmp_path / "none.json", laws.ALL)


def test_an_entry_expires_on_its_day():
    (one,) = parsed(entry(expires="2027-03-01"))
    assert baseline.expired([one], datetime.date(2027, 2, 28)) == []
    assert baseline.expired([one], datetime.date(2027, 3, 1)) == [one]


def test_entries_are_chosen_by_release():
    one, other = parsed(entry(), entry(versions=["0.32.0", "0.31.0"]))
    assert baseline.of_release([one, other], "0.33.0") == [one]
    assert baseline.of_release([one, other], "0.31.0") == [other]
