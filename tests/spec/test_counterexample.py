import gzip
import io
import json

import pytest
from attrs import evolve
from rich.console import Console

from kvproof.core import actions as act
from kvproof.core.world import new_world
from kvproof.spec import check
from kvproof.spec import counterexample as examples
from kvproof.spec.check import Job, Options
from kvproof.spec.counterexample import CounterexampleError, Outcome
from kvproof.spec.engines import scopes, walk
from kvproof.spec.exits import UserError
from kvproof.spec.judge import Violation, attempt
from kvproof.spec.laws.base import Evidence
from kvproof.spec.report import lines, markdown, terminal


def found(fault, law, scope):
    options = Options(fault=fault, laws=(law,), scope=scope)
    (example,) = check.perform(Job("fault", options, fault=fault)).found
    return example


@pytest.fixture(scope="module")
def example():
    return found("M-COW-7", "COW-5", "m4-fa4")


def changed(example, **fields):
    document = json.loads(examples.dumps(example))
    document.update(fields)
    return json.dumps(document)


def test_the_json_form_is_exact(example):
    text = examples.dumps(example)
    assert examples.loads(text) == example
    assert examples.dumps(examples.loads(text)) == text


@pytest.mark.parametrize("name", ["fa4-m8-n2-host-ample", "fa4-m4-n2-host-tiny", "many-n1-host"])
def test_every_record_of_a_walk_with_a_host_tier_survives_the_json_form(name):
    """Handoffs with their outcomes in words, notices, stores with and without what events say, counters."""
    scope = next(scope for scope in scopes.ALL if scope.name == name)
    config = scope.config()
    walker = walk.Walker.of(config, scope.limits(config), "records")
    world, actions, records = new_world(config), [], []
    for _ in range(600):
        moment = attempt(world, walker.propose(world))
        walker.observe(moment)
        world = moment.after
        actions.append(moment.action)
        records.append(moment.record)
    assert any(record.outcomes for record in records if record is not None)
    violation = Violation("CP-4", len(actions) - 1, Evidence.of("nothing"), False)
    example = examples.build(config, actions, violation, "", legal=True, engine="walk", seed=0, scope=name)
    text = examples.dumps(example)
    assert examples.loads(text) == example
    assert examples.dumps(examples.loads(text)) == text
    assert name in markdown.render(example)


def test_every_action_survives_the_json_form(example):
    actions = (
        act.Submit(1, (0, 1), 1, True),
        act.BeginStep(),
        act.Lookup(1),
        act.Allocate(1, 2, 3, 4, 5),
        act.Preempt(1),
        act.Withdraw(1),
        act.Drain(),
        act.BuildMetadata(),
        act.Dispatch(),
        act.Execute("zero"),
        act.Output(1, (0,)),
        act.Finish(1),
        act.ResetCache(),
        act.EvictBlocks((1, 2)),
        act.LookupExternal(1, 8),
        act.Promote(1),
        act.RunStore(2),
        act.RunLoad(3),
        act.CompleteStore(2, 1),
        act.CompleteLoad(1, True, 4),
        act.ResetHost(),
        act.ReadCounters(),
        act.AppendRows(0, ((1,), ())),
    )
    assert {type(action) for action in actions} == set(act.ACTIONS)
    refused = examples.Outcome(None, "phase", "no")
    every = evolve(example, actions=actions, outcomes=(refused,) * len(actions), position=0)
    assert examples.loads(examples.dumps(every)) == every


def test_evidence_becomes_plain():
    assert examples.plain({"b": {2, 1}, "a": [1, (None, True)]}) == (("a", (1, (None, True))), ("b", (1, 2)))
    assert examples.plain(ValueError("x")) == "x"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", '"format" must be "kvproof-counterexample"'),
        ('{"format": "kvproof-counterexample", "version": 2}', "has version 2, this kvproof reads version 1"),
        ('{"format": "kvproof-counterexample", "version": true}', "has version True"),
        ('{"format": "kvproof-counterexample", "version": 1}', "actions: a list is needed"),
    ],
)
def test_a_text_that_is_no_counterexample_is_refused_with_the_reason(text, message):
    with pytest.raises(CounterexampleError, match=f"^here: .*{message}"):
        examples.loads(text, "here")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"seed": "0"}, "seed: Expected `int`, got `str`"),
        ({"surprise": 1}, "unknown field 'surprise'"),
        ({"position": 99}, "position 99 is not one of"),
        ({"actions": []}, "0 actions and"),
        ({"values": {"a": 1}}, "values: a list of"),
        ({"profile": {"name": "sound", "colour": "red"}}, "profile: unknown field 'colour'"),
        ({"geometry": {"sizes": [1]}}, "geometry: .*missing required field"),
        ({"settings": 3}, "settings: Expected `object`, got `int`"),
    ],
)
def test_a_wrong_field_is_refused_with_its_place(example, fields, message):
    with pytest.raises(CounterexampleError, match=message):
        examples.loads(changed(example, **fields))


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ({"action": "Jump"}, r'actions\[0\]: "action" must be one of Submit, '),
        ({"action": "Finish"}, r"actions\[0\]: .*missing required field `request`"),
        ({"action": "Finish", "request": "1"}, r"actions\[0\]: Expected `int`, got `str`"),
        ({"action": "Finish", "request": 1, "why": 2}, r"actions\[0\]: unknown field 'why'"),
        (7, r"actions\[0\]:"),
    ],
)
def test_a_wrong_action_is_refused_with_its_place(example, action, message):
    document = json.loads(examples.dumps(example))
    document["actions"][0] = action
    with pytest.raises(CounterexampleError, match=message):
        examples.loads(json.dumps(document))


@pytest.mark.parametrize("outcome", [3, {"refused": 1}, {"refused": "a", "x": 1}, {"action": "Drain", "taken": 1}])
def test_a_wrong_outcome_is_refused_with_its_place(example, outcome):
    document = json.loads(examples.dumps(example))
    document["outcomes"][1] = outcome
    with pytest.raises(CounterexampleError, match=r"outcomes\[1\]: "):
        examples.loads(json.dumps(document))


def places(value, path=()):
    """Every place inside a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield (*path, key)
        yield from places(item, (*path, key))


@pytest.mark.parametrize("wrong", [[], [1], {}, {"a": 1}, 5, -1, "x", None, 2**70, 10**400, 1.5, True], ids=repr)
def test_whatever_stands_in_a_place_is_shown_or_refused_clearly(example, wrong):
    """Shown, run again, or an error for the user; nothing else comes out."""
    text = examples.dumps(example)
    refused = 0
    for path in places(json.loads(text)):
        document = json.loads(text)
        inner = document
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = wrong
        try:
            read = examples.loads(json.dumps(document))
            terminal.show(Console(file=io.StringIO()), read)
            markdown.render(read)
            check.replay(read)
        except UserError:
            refused += 1
    assert refused > 10


@pytest.mark.parametrize("text", ['{"a": "\\ud800"}', "[" * 100_000, '{"a": ' + "9" * 5000 + "}", b"\xff"])
def test_a_text_that_cannot_be_read_or_shown_is_refused(text):
    with pytest.raises(CounterexampleError, match="is not JSON"):
        examples.loads(text)


def test_values_that_are_nested_too_deeply_are_refused(example):
    deep = json.loads("[" * 700 + "]" * 700)
    with pytest.raises(CounterexampleError, match=r"nested too deeply|is not JSON"):
        examples.loads(changed(example, values=[["deep", deep]]))


def test_sizes_must_fit_the_groups(example):
    geometry = json.loads(examples.dumps(example))["geometry"]
    with pytest.raises(CounterexampleError, match="one entry for each of 2 groups"):
        examples.loads(changed(example, geometry={**geometry, "sizes": [4]}))


def test_what_would_take_all_memory_is_not_run(example):
    with pytest.raises(CounterexampleError, match="num_blocks is 1000000000, at most"):
        check.replay(evolve(example, settings=evolve(example.settings, num_blocks=10**9)))


@pytest.mark.parametrize(
    "data", [gzip.compress(b"{}", mtime=0), b'{"format": "kv-trace", "version": 1}\n{}\n'], ids=["gzip", "plain"]
)
def test_a_recording_gets_the_advice_to_replay_it(tmp_path, data):
    file = tmp_path / "m1"
    file.write_bytes(data)
    with pytest.raises(CounterexampleError, match=f"use kvproof replay {file}"):
        examples.read(file)


def test_a_missing_file_is_a_clear_error(tmp_path):
    with pytest.raises(CounterexampleError, match=r"none.json: cannot be read"):
        examples.read(tmp_path / "none.json")


def test_replaying_shows_the_same_violation_again(example):
    replayed = check.replay(example)
    assert replayed.differences == ()
    assert replayed.violation is not None
    assert (replayed.violation.law, replayed.violation.position) == ("COW-5", example.position)
    assert replayed.violation.evidence.message == example.message


def test_replaying_without_the_fault_shows_no_violation_and_names_what_differs(example):
    replayed = check.replay(evolve(example, fault=""))
    assert replayed.violation is None
    assert check.replay(evolve(example, outcomes=(examples.Outcome(),) * len(example.actions))).differences[0] == (
        "action 0 (Submit) answers differently than recorded"
    )


def test_replaying_what_this_version_does_not_know_is_a_clear_error(example):
    with pytest.raises(UserError, match="no law 'ZZ-1'"):
        check.replay(evolve(example, law="ZZ-1"))
    with pytest.raises(UserError, match="no fault 'M-ZZ-1'"):
        check.replay(evolve(example, fault="M-ZZ-1"))
    with pytest.raises(UserError, match="the configuration is refused"):
        check.replay(evolve(example, settings=evolve(example.settings, dcp_size=0)))


@pytest.mark.parametrize("name", [scope.name for scope in scopes.ALL])
def test_settings_resolve_to_the_configuration_they_were_taken_from(name):
    config = scopes.by_name(name).config()
    assert examples.settings_of(config).config(config.profile) == config


def test_the_markdown_form_is_short_and_ends_with_the_command(example):
    page = markdown.render(example)
    assert page.startswith("# COW-5 does not hold\n")
    assert len(page.splitlines()) < markdown.MAX_LINES
    assert page.splitlines()[-1].strip() == examples.command(example)
    assert examples.command(example) == "kvproof check --fault M-COW-7 --law COW-5 --seed 0 --scope m4-fa4"
    assert page.count("**✗ the law breaks here**") == 1
    assert "**✗ the law breaks here**" in next(line for line in page.splitlines() if line.startswith(f"| {example.position} |"))


def test_a_long_counterexample_leaves_out_its_middle_and_stays_short(example):
    many = 100
    config = scopes.by_name("fa4").config()
    actions = tuple(act.EvictBlocks((1 + at % 4,)) for at in range(many))
    violation = Violation("PC-1", many - 1, Evidence.of("a toy", block=1))
    long = examples.build(config, actions, violation, "S.", legal=True, engine="walk", seed=0, scope="fa4")
    story = lines.story(long)
    assert len(story) == lines.MAX_LINES
    assert story[-1].number == str(many - 1)
    assert [line.number for line in story[: lines.HEAD]] == ["0", "1", "2", "3", "4", "5"]
    shown = sum(line.number != "..." for line in story)
    assert story[lines.HEAD].action.startswith(f"{many - shown} lines left out")
    assert len(markdown.render(long).splitlines()) < markdown.MAX_LINES


@pytest.mark.parametrize("position", [0, 5, 6, 40, 79, 80, 81, 99])
def test_the_line_that_breaks_the_law_is_never_left_out(example, position):
    many = 100
    actions = tuple(act.EvictBlocks((1 + at % 4,)) for at in range(many))
    long = evolve(example, actions=actions, outcomes=(Outcome(code="X", message="x"),) * many, position=position)
    told = lines.told(long)
    assert len(told) <= lines.MAX_LINES
    assert [line.number for line, broken in told if broken] == [str(position)]
    left_out = [int(line.action.split()[0]) for line, _ in told if line.number == "..."]
    assert sum(left_out) + len(told) - len(left_out) == many


def test_the_closing_of_a_step_is_one_line_and_the_last_action_its_own():
    example = found("M-COW-2", "CC-1", "fa4-m4-n2")
    story = lines.story(example)
    assert any(", ".join(("Drain", "BuildMetadata", "Dispatch", "zero")) in line.action for line in story)
    assert story[-1].number == str(example.position)
    assert example.position == len(example.actions) - 1
