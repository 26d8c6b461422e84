"""What an exploration certifies, how it is pinned, written and taken up again, and when it does not hold."""

from __future__ import annotations

import json

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core.world import new_world
from kvproof.spec import counterexample, faults, laws
from kvproof.spec import judge as judges
from kvproof.spec.engines import drain, rules, scope_parts, witnesses
from kvproof.spec.exits import ExitCode, UserError
from kvproof.spec.exploring import alphabet, canonical, certificate, jobs, kills, pins, result, resume, scopes
from kvproof.spec.exploring.bounds import Bounds
from kvproof.spec.exploring.jobs import Asked, Job
from kvproof.spec.exploring.kills import Kill
from kvproof.spec.exploring.pins import Difference, Pin
from kvproof.spec.exploring.result import Result
from kvproof.spec.exploring.scope import Scope

TINY = Scope(
    "tiny",
    (scope_parts.full(1),),
    Bounds(("ab",), submits=1, outputs=1, live=1, at_most={act.Withdraw: 1}),
    {"max_model_len": 3, "num_blocks": 4, "max_running": 1},
)


def explored(**asked):
    return jobs.perform(Job(Asked(**asked), TINY))


@pytest.fixture(scope="module")
def done():
    return explored()


def naive(scope):
    """Orbits and edges by nothing but the alphabet and the key, without levels, laws or digests."""
    config = scope.config()
    limits = scope.bounds.limits(config)
    first = (new_world(config), (*scope.bounds.start(), False))
    seen, waiting, edges = {canonical.key(*first)}, [first], 0
    while waiting:
        world, left = waiting.pop()
        for action, less in alphabet.enabled(world, left[:-1], scope.bounds, limits):
            moment = judges.attempt(world, action)
            edges += 1
            found = (moment.after, (*less, drain.told_after(bool(left[-1]), moment)))
            if canonical.key(*found) not in seen:
                seen.add(canonical.key(*found))
                waiting.append(found)
    return len(seen), edges


def test_the_counts_are_those_of_a_plain_walk_over_the_graph(done):
    assert (done.certificate.orbits, done.certificate.edges) == naive(TINY)
    assert done.certificate.end == "complete"
    assert done.example is None


def test_the_parts_of_a_certificate_agree(done):
    found = done.certificate
    assert sum(found.levels) == found.orbits
    assert len(found.levels) == found.depth + 1
    assert sum(found.kinds.values()) == found.edges == found.premises[rules.TOTALITY]
    assert set(found.witnesses) | set(found.not_reached) == set(witnesses.NAMES)
    assert not set(found.witnesses) & set(found.not_reached)
    assert all(1 <= depth <= found.depth + 1 for depth in found.witnesses.values())
    assert found.witnesses["withdrawal"] == 1 + min(
        depth
        for depth in range(found.depth)
        if "withdrawal" in jobs.perform(Job(Asked(depth=depth + 1), TINY)).certificate.witnesses
    )
    assert found.leaves_out == TINY.leaves_out()
    assert found.bounds["at_most"] == {"Withdraw": 1}


def test_every_law_is_asked_for_and_those_that_cannot_arise_are_never_judged(done):
    assert set(done.certificate.laws) == {law.id for law in laws.ALL} | {rules.GUARD}
    assert done.certificate.premises["PC-1"] > 0
    assert {"LD-1", "CP-1", rules.GUARD} <= set(done.certificate.never)


def test_a_certificate_is_the_same_after_json(done):
    text = json.dumps(certificate.as_dict(done.certificate))
    assert certificate.from_dict(json.loads(text)) == done.certificate


@pytest.mark.parametrize("change", [{"orbits": "many"}, {"premise_never_true": []}, {"bytes_per_orbit": 1.0}])
def test_a_certificate_that_contradicts_itself_is_refused(done, change):
    document = json.loads(json.dumps(certificate.as_dict(done.certificate)))
    with pytest.raises(ValueError, match=r"orbits|do not agree"):
        certificate.from_dict({**document, **change})


def test_a_depth_bounds_the_search_and_is_left_out_beyond():
    short = explored(depth=3)
    whole = explored()
    assert (short.certificate.end, short.certificate.depth) == ("depth", 3)
    assert short.certificate.levels == whole.certificate.levels[:4]
    assert "runs of more than 3 actions" in short.certificate.leaves_out


def test_worlds_without_the_quotient_are_counted_on_demand(done):
    assert done.certificate.worlds is None
    counted = explored(full=True).certificate
    assert counted.worlds is not None
    assert counted.worlds > counted.orbits == done.certificate.orbits
    assert evolve(counted, worlds=None) == done.certificate


def test_random_runs_stay_inside_the_graph_and_are_decided_by_their_seed(done):
    sampled = explored(runs=30, seed=5).certificate
    assert sampled.end == "sampled"
    assert 0 < sampled.orbits <= done.certificate.orbits
    assert set(sampled.witnesses) <= set(done.certificate.witnesses)
    assert sampled == explored(runs=30, seed=5).certificate
    assert sampled != explored(runs=30, seed=500).certificate


def test_many_random_runs_meet_nearly_the_whole_graph(done):
    sampled = explored(runs=600, laws=("PC-1",)).certificate
    assert 0.8 * done.certificate.orbits < sampled.orbits <= done.certificate.orbits
    assert set(sampled.witnesses) == set(done.certificate.witnesses)


# --- pins ---------------------------------------------------------------------------------------------------------


def compared(done, **pinned):
    return Result(done.job.asked, [done], {"tiny": Pin(**pinned)} if pinned else {})


def size(done):
    return {"orbits": done.certificate.orbits, "edges": done.certificate.edges, "depth": done.certificate.depth}


def only(done, **asked):
    """The job as if it had been asked for by its scope alone."""
    return evolve(done, job=evolve(done.job, asked=Asked(scopes=("tiny",), **asked)))


def test_what_is_pinned_holds(done):
    assert compared(only(done), **size(done)).problems == []
    assert compared(only(done), **size(done)).verdict is ExitCode.HOLDS


@pytest.mark.parametrize("name", ["orbits", "edges", "depth"])
def test_another_count_than_the_pinned_one_is_undetermined_and_both_are_said(done, name):
    counts = size(done)
    found = compared(only(done), **{**counts, name: counts[name] + 1000})
    assert found.verdict is ExitCode.UNDETERMINED
    assert found.problems == [f"not as pinned: tiny: {name} {counts[name]:,}, pinned {counts[name] + 1000:,}"]


def test_where_two_graphs_part_is_said(done):
    levels = done.certificate.levels
    other = (*levels[:5], levels[5] + 3, *levels[6:])
    [problem] = compared(only(done), **{**size(done), "orbits": 3}, levels=other).problems
    assert problem.endswith(
        f"they part after 5 actions ({levels[5]:,} orbits there, pinned {levels[5] + 3:,}): look with --depth 5"
    )
    assert compared(only(done), **size(done), levels=levels).problems == []
    assert compared(only(done), **size(done), levels=other).verdict is ExitCode.UNDETERMINED
    longer = compared(only(done), **size(done), levels=(*levels, 2)).problems
    assert f"they part after {len(levels)} actions (0 orbits there, pinned 2)" in longer[0]


def test_the_pins_know_their_levels():
    for name, pin in pins.every().items():
        assert pin.levels is not None, name
        assert (sum(pin.levels), len(pin.levels)) == (pin.orbits, pin.depth + 1)


def test_a_scope_without_a_pin_is_undetermined(done):
    assert compared(only(done)).verdict is ExitCode.UNDETERMINED
    assert "tiny: not pinned; found" in compared(only(done)).problems[0]


def test_worlds_are_compared_where_they_were_counted(done):
    counted = evolve(done.certificate, worlds=77)
    assert not pins.agree(Pin(**size(done), worlds=76), pins.of(counted))
    assert pins.agree(Pin(**size(done), worlds=77), pins.of(counted))
    assert pins.agree(Pin(**size(done), worlds=76), pins.of(done.certificate))
    assert not pins.agree(Pin(**size(done)), pins.of(counted))


def test_what_says_nothing_about_the_whole_graph_is_not_compared(done):
    assert Result(Asked(depth=2), [explored(depth=2)], {"tiny": Pin(1, 1, 1)}).differences == []
    assert Result(Asked(runs=2), [explored(runs=2)]).differences == []
    given_up = evolve(only(done), certificate=evolve(done.certificate, end="edges"))
    assert compared(given_up, orbits=1, edges=1, depth=1).problems == ["given up, too large: tiny"]


def test_a_bound_that_nothing_reached_leaves_the_whole_graph_to_compare(done):
    deep = explored(depth=500)
    assert (deep.certificate.end, deep.of_scope) == ("complete", True)
    assert Result(Asked(depth=500), [deep], {"tiny": Pin(**size(done))}).problems == []
    assert "pinned 1" in Result(Asked(depth=500), [deep], {"tiny": Pin(1, 1, 1)}).problems[0]
    # Of a scope that has a bound of its own the whole graph is another one than the pinned.
    bounded = evolve(TINY, bounds=evolve(TINY.bounds, depth=5))
    found = [jobs.perform(Job(Asked(depth=depth), bounded)) for depth in (None, 5, 4, 500)]
    assert [one.of_scope for one in found] == [True, True, False, False]


def test_pins_are_the_same_after_the_file(tmp_path):
    known = {"b": Pin(3, 4, 2), "a": Pin(1, 1, 0, 9)}
    pins.write(known, tmp_path / "pins.json")
    assert pins.read(tmp_path / "pins.json") == known
    assert list(pins.read(tmp_path / "pins.json")) == ["b", "a"]


@pytest.mark.parametrize("text", ["", "{}", '{"format": "x", "version": 1, "scopes": {}}', '{"scopes": {"a": {"orbits": 1}}}'])
def test_a_file_that_holds_no_pins_is_refused_by_name(tmp_path, text):
    (tmp_path / "pins.json").write_text(text)
    with pytest.raises(UserError, match=r"pins\.json: is no file of pins"):
        pins.read(tmp_path / "pins.json")


def test_an_update_keeps_what_was_not_explored_and_drops_what_is_gone(done):
    known = {"gone": Pin(1, 1, 1), "other": Pin(2, 2, 2), "tiny": Pin(1, 1, 1)}
    assert pins.updated([done.certificate], known, ["tiny", "other"]) == {
        "tiny": pins.of(done.certificate),
        "other": Pin(2, 2, 2),
    }
    gone = pins.differences([], known, ["tiny", "other"])
    assert gone == [Difference("gone", Pin(1, 1, 1), None)]
    assert str(gone[0]) == "gone: pinned, but there is no such scope"


def test_an_update_keeps_the_worlds_of_a_graph_that_did_not_change(done):
    known = {"tiny": Pin(**size(done), worlds=9)}
    assert pins.updated([done.certificate], known, ["tiny"]) == known


def test_the_pins_are_those_of_the_catalogue():
    assert list(pins.read()) == [scope.name for scope in scopes.known()]


# --- what keeps an exploration from holding -----------------------------------------------------------------------


def test_over_the_whole_catalogue_what_nothing_reached_is_a_finding(monkeypatch, done):
    monkeypatch.setattr(scopes, "CATALOGUE", (TINY,))
    found = compared(done, **size(done))
    assert found.whole
    assert found.verdict is ExitCode.UNDETERMINED
    assert found.never == list(done.certificate.never)
    assert found.unreached == list(done.certificate.not_reached)


def test_a_law_that_another_scope_judges_is_no_finding(monkeypatch, done):
    monkeypatch.setattr(scopes, "CATALOGUE", (TINY,))
    everything = evolve(
        done,
        certificate=evolve(
            done.certificate,
            premises=dict.fromkeys(done.certificate.laws, 1),
            witnesses=dict.fromkeys(witnesses.NAMES, 4),
        ),
    )
    found = Result(Asked(), [done, everything], {"tiny": Pin(**size(done))})
    assert found.problems == []
    assert found.verdict is ExitCode.HOLDS
    assert found.witnesses["withdrawal"] == min(4, done.certificate.witnesses["withdrawal"])


def test_a_named_law_that_was_never_judged_is_a_finding_in_any_scope():
    named = explored(scopes=("tiny",), laws=("LD-1",))
    found = compared(named, **size(named))
    assert found.problems == ["premise true in no scope: LD-1"]
    assert found.verdict is ExitCode.UNDETERMINED


def test_some_scopes_or_a_quick_exploration_need_not_reach_everything(done):
    for asked in (Asked(scopes=("tiny",)), Asked(which="quick")):
        found = Result(asked, [evolve(done, job=evolve(done.job, asked=asked))], {"tiny": Pin(**size(done))})
        assert found.problems == []


# --- faults -------------------------------------------------------------------------------------------------------


def planted(name, **asked):
    return jobs.perform(Job(Asked(fault=name, **asked), TINY, name))


def test_a_planted_fault_has_a_shortest_counterexample():
    done = planted("M-LRU-1")
    assert done.example is not None
    assert done.certificate.end == "violation"
    length = len(done.example.actions)
    assert (done.example.law, length) == ("PC-8", 8)
    assert planted("M-LRU-1", depth=length).example is not None
    assert planted("M-LRU-1", depth=length - 1).example is None
    assert Result(Asked(fault="M-LRU-1"), [done]).verdict is ExitCode.REFUTED


def test_a_fault_that_a_scope_cannot_show_is_undetermined():
    done = planted("M-LOAD-1")
    assert done.example is None
    assert done.certificate.end == "complete"
    assert Result(Asked(fault="M-LOAD-1"), [done]).verdict is ExitCode.UNDETERMINED


def test_a_fault_of_the_configuration_alone_needs_no_action():
    done = planted("M-GEO-3")
    assert done.example is not None
    assert (done.example.law, done.example.actions, done.example.position) == ("DS-1", (), -1)
    assert done.certificate.orbits == 0


def test_a_fault_is_gone_after_its_job(done):
    planted("M-LRU-1")
    assert explored().certificate == done.certificate


def test_a_counterexample_that_does_not_replay_is_never_reported(monkeypatch):
    monkeypatch.setattr(counterexample, "replay", lambda *given: counterexample.Replayed(None, ()))
    with pytest.raises(RuntimeError, match="PC-8 holds when its counterexample is run again"):
        planted("M-LRU-1")


def test_a_law_that_looks_at_whole_runs_is_asked_about_the_run_to_every_orbit():
    assert kills.options(["LV-10"]).all_runs
    assert kills.options(["EV-3"]).all_runs  # looks at moments and at runs
    assert not kills.options(["PC-1"]).all_runs
    mixed = kills.options(["DS-1", "LV-5"])
    assert mixed.all_runs
    assert [law.id for law in mixed.laws] == ["DS-1", "LV-5"] == list(mixed.only)


def test_a_fault_is_killed_by_whichever_of_its_laws_breaks_first():
    kill = kills.table()["M-GEO-1"]
    scope = scopes.by_name(kill.scope)
    lengths = {}
    for chosen in ((), ("DS-1",), ("LV-5",)):
        done = jobs.perform(Job(Asked(fault="M-GEO-1", laws=chosen), scope, "M-GEO-1"))
        assert done.example is not None
        lengths[chosen] = (done.example.law, len(done.example.actions))
    assert lengths == {(): ("LV-5", 4), ("DS-1",): ("DS-1", 19), ("LV-5",): ("LV-5", 4)}
    assert (kill.law, kill.length) == lengths[()]


def test_kills_are_compared_with_the_table():
    done = planted("M-LRU-1")
    assert done.example is not None
    kill = Kill("tiny", done.example.law, len(done.example.actions))
    asked = Asked(every_fault=True, scopes=("tiny",))
    assert Result(asked, [done], kills={"M-LRU-1": kill}).verdict is ExitCode.HOLDS
    longer = Result(asked, [done], kills={"M-LRU-1": evolve(kill, length=kill.length + 1)})
    assert longer.verdict is ExitCode.UNDETERMINED
    assert f"after {kill.length} actions, pinned {kill.law} in tiny after {kill.length + 1} actions" in longer.problems[0]
    missing = Result(Asked(every_fault=True), [done], kills={"M-LRU-1": kill})
    assert missing.unpinned == [fault.id for fault in faults.ALL if fault.id != "M-LRU-1"]
    assert missing.verdict is ExitCode.UNDETERMINED


# --- processes and files ------------------------------------------------------------------------------------------


def test_processes_of_their_own_find_the_same():
    work = [Job(Asked(depth=depth), TINY) for depth in (2, 5)]
    told: list[jobs.Done] = []
    found = jobs.perform_all(work, 2, told.append)
    assert [done.certificate for done in found] == [jobs.perform(job).certificate for job in work]
    assert sorted(done.certificate.depth for done in told) == [2, 5]


def test_short_searches_share_a_process_and_find_the_same():
    names = ["M-LRU-1", "M-POOL-2", "M-GEO-3"] * 5
    work = [*(Job(Asked(fault=name), TINY, name) for name in names), Job(Asked(depth=2), TINY), Job(Asked(depth=3), TINY)]
    shared = jobs.batches(work)
    assert [len(batch) for batch in shared] == [jobs.BATCH, 3, 1, 1]
    assert [at for batch in shared for at in batch] == list(range(len(work)))
    found = jobs.perform_all(work[10:], 2)
    assert [(done.job, done.certificate, done.example) for done in found] == [
        (done.job, done.certificate, done.example) for done in map(jobs.perform, work[10:])
    ]


def test_what_a_process_cannot_do_is_raised_here():
    broken = evolve(TINY, settings={**TINY.settings, "num_blocks": 0})
    with pytest.raises(RuntimeError, match=r"(?s)tiny: .*ConfigError"):
        jobs.perform_all([Job(Asked(), broken), Job(Asked(depth=1), broken)], 2)


def test_a_finished_job_is_taken_from_its_file(tmp_path):
    done = planted("M-LRU-1")
    file = resume.write(done, tmp_path, None)
    assert file.name == "fault-M-LRU-1-tiny.json"
    read = resume.read(done.job, tmp_path, None)
    assert isinstance(read, jobs.Done)
    assert (read.certificate, read.example, read.resumed) == (done.certificate, done.example, True)


@pytest.mark.parametrize("change", [{"pin": Pin(1, 1, 1)}, {"depth": 4}, {"bounds": 2}, {"laws": ("PC-1",)}])
def test_a_file_that_answers_another_question_is_not_taken(tmp_path, done, change):
    file = resume.write(done, tmp_path, None)
    assert isinstance(resume.read(done.job, tmp_path, None), jobs.Done)
    scope = evolve(TINY, bounds=evolve(TINY.bounds, outputs=change.get("bounds", TINY.bounds.outputs)))
    job = Job(Asked(depth=change.get("depth"), laws=change.get("laws", ())), scope)
    file.replace(resume.file_of(job, tmp_path))
    assert "is of another kvproof" in str(resume.read(job, tmp_path, change.get("pin")))


def test_what_was_asked_for_less_or_more_has_a_file_of_its_own(tmp_path):
    asked = [
        Asked(),
        Asked(depth=2),
        Asked(depth=3),
        Asked(full=True),
        Asked(laws=("PC-1",)),
        Asked(laws=("PC-2",)),
        Asked(runs=2),
    ]
    files = [resume.file_of(Job(one, TINY), tmp_path).name for one in asked]
    assert files[:4] == ["scope-tiny.json", "scope-tiny-depth-2.json", "scope-tiny-depth-3.json", "scope-tiny-full.json"]
    assert len(set(files)) == len(files)
    assert resume.file_of(Job(Asked(processes=9, scopes=("tiny",)), TINY), tmp_path).name == files[0]


def test_a_file_of_other_sources_is_not_taken(tmp_path, done, monkeypatch):
    resume.write(done, tmp_path, None)
    monkeypatch.setattr(resume, "sources", lambda: "others")
    assert "is of another kvproof" in str(resume.read(done.job, tmp_path, None))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "kvproof-explored", "version": 2}'])
def test_a_file_that_is_no_result_is_not_taken_and_named(tmp_path, done, text):
    file = resume.write(done, tmp_path, None)
    file.write_text(text)
    assert str(resume.read(done.job, tmp_path, None)).startswith(str(file))


def test_without_a_file_there_is_nothing_to_say(tmp_path, done):
    assert resume.read(done.job, tmp_path, None) == ""


def test_the_document_says_everything(done):
    found = result.as_dict(compared(only(done), **size(done)))
    assert found["verdict"] == "holds"
    assert found["scopes"][0]["orbits"] == done.certificate.orbits
    assert json.loads(json.dumps(found)) == json.loads(json.dumps(result.as_dict(compared(only(done), **size(done)))))


# --- scopes in which nothing happens ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "why"),
    [
        ({"prompts": ()}, "has no prompt"),
        ({"prompts": ("",)}, "has no prompt"),
        ({"submits": 0}, "submits nothing"),
        ({"live": 0}, "submits nothing"),
        ({"prompts": ("aaaa",)}, "has a prompt of 4 tokens, and max_model_len = 3 allows 2"),
        ({"alphabet": (0,)}, "has a prompt of 2 letters and 1 tokens for them"),
        ({"contexts": ()}, "has no context"),
    ],
)
def test_a_scope_in_which_nothing_can_happen_is_refused(bounds, why):
    scope = evolve(TINY, bounds=evolve(TINY.bounds, **bounds))
    with pytest.raises(UserError, match=f"scope tiny {why}"):
        jobs.perform(Job(Asked(), scope))


def test_every_scope_of_the_package_can_be_explored():
    for scope in scopes.every():
        scope.check()


def test_a_fault_that_nobody_plants_is_refused():
    with pytest.raises(UserError, match="M-LRU-1 is asked for and not planted"):
        Job(Asked(fault="M-LRU-1"), TINY)
