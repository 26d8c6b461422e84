"""``kvproof explore`` on the command line: what it says, writes and ends with."""

from __future__ import annotations

import io
import json

import pytest
from attrs import evolve
from rich.console import Console

from kvproof.core import actions as act
from kvproof.core import pool
from kvproof.spec import check, cli, counterexample, laws
from kvproof.spec.commands import explore as command
from kvproof.spec.engines import scope_parts, witnesses
from kvproof.spec.exploring import jobs, kills, pins, scopes, search
from kvproof.spec.exploring import result as results
from kvproof.spec.exploring.bounds import Bounds
from kvproof.spec.exploring.kills import Kill
from kvproof.spec.exploring.pins import Pin
from kvproof.spec.exploring.scope import Scope
from kvproof.spec.report import explored

A = Scope(
    "a",
    (scope_parts.full(1),),
    Bounds(("a",), submits=1, outputs=1, live=1, at_most={act.Withdraw: 1}),
    {"max_model_len": 2, "num_blocks": 3, "max_running": 1},
    quick=True,
)
B = Scope(
    "b",
    (scope_parts.full(1),),
    Bounds(("ab",), submits=1, outputs=1, live=1),
    {"max_model_len": 3, "num_blocks": 4, "max_running": 1},
)


@pytest.fixture
def catalogue(monkeypatch, tmp_path):
    """Two tiny scopes, pinned in a file of their own."""
    monkeypatch.setattr(scopes, "CATALOGUE", (A, B))
    monkeypatch.setattr(scopes, "FURTHER", ())
    monkeypatch.setattr(pins, "FILE", tmp_path / "pins.json")
    found = {scope.name: pins.of(jobs.perform(jobs.Job(jobs.Asked(), scope)).certificate) for scope in (A, B)}
    pins.write(found)
    return found


def explore(capsys, *arguments):
    code = cli.main(["explore", "--processes", "1", *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, said.err


def last_line(out):
    return out.rstrip("\n").rpartition("\n")[2]


def test_a_depth_promises_no_more_than_was_seen(catalogue, capsys):
    code, out, _ = explore(capsys, "--scope", "a", "--depth", "3")
    assert code == 0
    assert last_line(out) == "verdict: holds in every behaviour of at most 3 actions"


# --- verdicts -----------------------------------------------------------------------------------------------------


def test_named_scopes_as_pinned_hold(catalogue, capsys):
    code, out, _ = explore(capsys, "--scope", "a", "--scope", "b")
    assert code == 0
    assert last_line(out) == "verdict: holds within the bounds"
    for name, pin in catalogue.items():
        row = next(line.split() for line in out.splitlines() if line.split()[:1] == [name])
        assert {f"{pin.orbits:,}", f"{pin.edges:,}", str(pin.depth), "complete", "holds"} <= set(row)


def test_a_quick_exploration_takes_the_quick_scopes(catalogue, capsys):
    code, out, _ = explore(capsys, "--quick", "--json")
    assert code == 0
    assert [scope["scope"] for scope in json.loads(out)["scopes"]] == ["a"]


def test_the_whole_catalogue_is_undetermined_where_it_does_not_reach_everything(catalogue, capsys):
    code, out, _ = explore(capsys)
    assert code == 3
    assert "premise true in no scope: " in out
    assert "situations that no scope reaches: " in out
    assert last_line(out) == "kvproof explore"


def test_a_law_that_no_scope_asks_is_undetermined(catalogue, capsys):
    code, out, _ = explore(capsys, "--scope", "a", "--law", "ld-1")
    assert code == 3
    assert "premise true in no scope: LD-1" in out
    assert last_line(out) == "kvproof explore --scope a --law LD-1"


def test_a_family_of_laws_may_be_named(catalogue, capsys):
    code, out, _ = explore(capsys, "--scope", "a", "--law", "PC", "--json")
    assert code == 3
    document = json.loads(out)
    assert set(document["premises"]) == {law.id for law in laws.family("PC")}
    assert set(document["premise_never_true"]) < set(document["premises"])


def test_a_violated_law_gives_a_counterexample_that_replays(catalogue, capsys, monkeypatch, tmp_path):
    """No planted fault, but a broken model: a table is freed head first."""
    right = pool.eviction_order
    monkeypatch.setattr(pool, "eviction_order", tuple)
    code, out, _ = explore(capsys, "--scope", "b", "--report", tmp_path / "found")
    assert code == 2
    file = next((tmp_path / "found").glob("*.json"))
    assert (
        last_line(out)
        == f"kvproof report {tmp_path / 'found'}/{json.loads((tmp_path / 'found/explore.json').read_text())['files'][0]} --replay"
    )
    assert file.with_suffix(".md").is_file()
    assert cli.main(last_line(out).split()[1:]) == 2
    monkeypatch.setattr(pool, "eviction_order", right)
    assert cli.main(last_line(out).split()[1:]) == 3


def test_a_planted_fault_gives_its_shortest_counterexample(catalogue, capsys, tmp_path):
    code, out, _ = explore(capsys, "--fault", "m-lru-1", "--scope", "b", "--report", tmp_path)
    assert code == 2
    example = counterexample.read(next(tmp_path.glob("01-*.json")))
    assert (example.law, len(example.actions), example.fault, example.scope) == ("PC-8", 8, "M-LRU-1", "b")
    assert last_line(out) == f"kvproof report {tmp_path}/01-PC-8-M-LRU-1-b-explorer.json --replay"
    assert cli.main(last_line(out).split()[1:]) == 2
    assert check.replay(example).differences == ()


def test_the_printed_command_finds_the_counterexample_again(catalogue, capsys):
    _, out, _ = explore(capsys, "--fault", "M-LRU-1", "--scope", "b")
    assert last_line(out) == "kvproof explore --fault M-LRU-1 --law PC-8 --scope b"
    code, again, _ = explore(capsys, *last_line(out).split()[2:])
    assert code == 2
    assert again.partition("does not hold")[2] == out.partition("does not hold")[2]


def test_a_fault_that_the_scope_cannot_show_is_undetermined(catalogue, capsys):
    code, out, _ = explore(capsys, "--fault", "M-LOAD-1", "--scope", "a")
    assert code == 3
    assert last_line(out) == "kvproof explore --scope a --fault M-LOAD-1"


def test_a_fault_is_looked_for_where_it_is_pinned(catalogue, monkeypatch):
    monkeypatch.setattr(kills, "table", lambda: {"M-LRU-1": Kill("b", "PC-8", 8)})
    assert [job.scope.name for job in jobs.jobs(jobs.Asked(fault="M-LRU-1"))] == ["b"]
    assert [job.scope.name for job in jobs.jobs(jobs.Asked(fault="M-LRU-1", scopes=("a", "b")))] == ["a", "b"]
    assert [job.scope.name for job in jobs.jobs(jobs.Asked(fault="M-POOL-1"))] == ["a", "b"]
    assert [job.name for job in jobs.jobs(jobs.Asked(every_fault=True))] == ["M-LRU-1-b"]


@pytest.mark.parametrize(("length", "code"), [(8, 0), (7, 3)])
def test_every_fault_is_compared_with_the_table(catalogue, capsys, monkeypatch, length, code):
    monkeypatch.setattr(kills, "table", lambda: {"M-LRU-1": Kill("b", "PC-8", length)})
    found, out, _ = explore(capsys, "--faults", "--scope", "b", "--timing")
    assert found == code
    said = "M-LRU-1: PC-8 in b after 8 actions, pinned PC-8 in b after 7 actions"
    assert (f"not as pinned: {said}" in out) == (code == 3)
    assert last_line(out) == ("kvproof explore --fault M-LRU-1" if code else "verdict: holds: every fault is found as pinned")


def test_a_fault_without_a_pin_is_a_finding(catalogue, capsys, monkeypatch):
    monkeypatch.setattr(kills, "table", lambda: {"M-LRU-1": Kill("b", "PC-8", 8)})
    code, out, _ = explore(capsys, "--faults")
    assert code == 3
    assert "no scope is pinned for M-GEO-2, " in out


def test_a_fault_that_is_not_found_says_whether_the_law_is_one_of_its_laws(catalogue, capsys):
    code, out, _ = explore(capsys, "--fault", "M-LRU-1", "--scope", "b", "--law", "TB-1")
    assert code == 3
    assert "no counterexample to M-LRU-1 within these bounds; TB-1 is no law of the fault, which breaks PC-8" in out


def test_a_refuted_scope_is_told_as_soon_as_it_is(catalogue, capsys, monkeypatch):
    monkeypatch.setattr(pool, "eviction_order", tuple)
    code, _, error = explore(capsys, "--scope", "b")
    assert code == 2
    assert "explore: b: PC-8 is refuted, after 8 actions\n" in error


@pytest.mark.parametrize(("width", "heads"), [
    (40, ["scope", "verdict", "end", "orbits"]),
    (90, ["scope", "verdict", "end", "orbits", "edges", "depth", "judged", "situations", "groups"]),
    (200, ["scope", "verdict", "end", "orbits", "edges", "depth", "judged", "situations", "bytes", "groups"]),
])  # fmt: skip
def test_a_narrow_terminal_goes_without_columns_and_cuts_none(catalogue, width, heads):
    done = [jobs.perform(jobs.Job(jobs.Asked(), scope)) for scope in (A, B)]
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    explored.table(console, "title", results.of(jobs.Asked(), done), False)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert lines[2].split() == heads
    assert all(line == line.rstrip() and len(line) <= width for line in lines)
    assert lines[4].split()[:2] == ["a", "holds"]


def test_what_was_not_asked_is_not_said_to_be_covered(catalogue, capsys):
    document = json.loads(explore(capsys, "--quick", "--json")[1])
    assert (document["premise_never_true"], document["situations_never_reached"]) == (None, None)
    named = json.loads(explore(capsys, "--scope", "a", "--law", "PC-1", "--json")[1])
    assert (named["premise_never_true"], named["situations_never_reached"]) == ([], None)
    whole = json.loads(explore(capsys, "--json")[1])
    assert "LD-1" in whole["premise_never_true"]
    assert "preemption" in whole["situations_never_reached"]


# --- pins ---------------------------------------------------------------------------------------------------------


def test_another_count_is_undetermined_and_the_update_is_named(catalogue, capsys):
    pins.write({**catalogue, "b": evolve(catalogue["b"], edges=1)})
    code, out, _ = explore(capsys, "--scope", "a", "--scope", "b")
    assert code == 3
    assert f"not as pinned: b: edges {catalogue['b'].edges:,}, pinned 1" in out
    assert "if none of these was meant to change, something is wrong that no law names" in out
    assert last_line(out) == "kvproof explore --scope b --update"
    code, out, _ = explore(capsys, *last_line(out).split()[2:])
    assert code == 0
    assert f"pinned anew: b: {catalogue['b'].orbits:,} orbits, {catalogue['b'].edges:,} edges, depth 37; was" in out
    assert "1 edges, depth 37\n" in out
    assert pins.read() == catalogue
    assert "everything is as pinned" in explore(capsys, "--scope", "b", "--update")[1]


def test_an_update_never_pins_a_graph_that_was_left_by_a_violation(catalogue, capsys, monkeypatch):
    monkeypatch.setattr(pool, "eviction_order", tuple)
    assert explore(capsys, "--scope", "b", "--update")[0] == 2
    assert pins.read() == catalogue


# --- files, interruption --------------------------------------------------------------------------------------------


def test_the_certificate_is_written_with_a_file_per_scope(catalogue, capsys, tmp_path):
    out = tmp_path / "out"
    _, said, _ = explore(capsys, "--scope", "a", "--scope", "b", "--json", "--out", out)
    assert sorted(file.name for file in out.iterdir()) == ["certificate.json", "scope-a.json", "scope-b.json"]
    assert json.loads((out / "certificate.json").read_text()) == json.loads(said)


def test_an_interrupted_exploration_goes_on_with_what_is_not_finished(catalogue, capsys, monkeypatch, tmp_path):
    out, asked = tmp_path / "out", ["--scope", "a", "--scope", "b", "--json", "--out", tmp_path / "out"]
    explored = []
    real = search.explore

    def interrupted(config, bounds, options, progress):
        explored.append(bounds)
        if bounds is B.bounds and len(explored) == 2:
            raise KeyboardInterrupt
        return real(config, bounds, options, progress)

    monkeypatch.setattr(search, "explore", interrupted)
    code, said, error = explore(capsys, *asked)
    assert (code, said) == (1, "")
    assert error.splitlines()[-1] == "Interrupted: nothing was decided."
    assert [file.name for file in out.iterdir()] == ["scope-a.json"]
    code, resumed, _ = explore(capsys, *asked, "--resume")
    assert code == 0
    assert explored == [A.bounds, B.bounds, B.bounds]
    code, again, _ = explore(capsys, *asked)
    assert (code, again) == (0, resumed)


def test_what_is_taken_up_again_is_not_explored_again(catalogue, capsys, monkeypatch, tmp_path):
    asked = ["--fault", "M-LRU-1", "--scope", "b", "--json", "--out", tmp_path]
    first = explore(capsys, *asked)
    monkeypatch.setattr(search, "explore", lambda *given: pytest.fail("explored"))
    assert explore(capsys, *asked, "--resume") == (*first[:2], f"taken from {tmp_path}: 1 of 1\n")
    assert first[0] == 2


def test_files_of_other_bounds_or_pins_are_explored_again_and_named(catalogue, capsys, tmp_path):
    explore(capsys, "--scope", "a", "--out", tmp_path)
    before = (tmp_path / "scope-a.json").read_text()
    pins.write({**catalogue, "a": evolve(catalogue["a"], edges=1)})
    code, _, error = explore(capsys, "--scope", "a", "--out", tmp_path, "--resume")
    assert (code, error) == (
        3,
        f"{tmp_path}/scope-a.json: is of another kvproof, or of other bounds, laws or pins; explored again\n"
        f"taken from {tmp_path}: 0 of 1\n",
    )
    assert (tmp_path / "scope-a.json").read_text() != before


def test_what_was_explored_within_a_bound_leaves_whole_results_alone(catalogue, capsys, tmp_path):
    explore(capsys, "--scope", "a", "--out", tmp_path)
    before = (tmp_path / "scope-a.json").read_text()
    assert explore(capsys, "--scope", "a", "--depth", 2, "--out", tmp_path)[0] == 0
    assert (tmp_path / "scope-a.json").read_text() == before
    assert (tmp_path / "scope-a-depth-2.json").is_file()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda document: document["certificate"].update(scope="other"), "is of another scope or fault"),
        (lambda document: document["certificate"].update(end="violation"), "contradicts itself"),
        (lambda document: document.update(seconds=10**400), "is no result of an exploration"),
    ],
)
def test_a_file_that_cannot_be_is_explored_again(catalogue, capsys, tmp_path, change, why):
    first = explore(capsys, "--scope", "a", "--json", "--out", tmp_path)
    file = tmp_path / "scope-a.json"
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))
    code, out, error = explore(capsys, "--scope", "a", "--json", "--out", tmp_path, "--resume")
    assert (code, out) == first[:2]
    assert f"{file}: {why}" in error
    assert "explored again" in error


def test_a_file_that_is_nested_too_deeply_is_explored_again(catalogue, capsys, tmp_path):
    first = explore(capsys, "--scope", "a", "--json", "--out", tmp_path)
    (tmp_path / "scope-a.json").write_text("[" * 200_000)
    code, out, error = explore(capsys, "--scope", "a", "--json", "--out", tmp_path, "--resume")
    assert (code, out) == first[:2]
    assert "is no result of an exploration" in error


def test_large_graphs_and_those_of_unknown_size_begin_first():
    work = [jobs.Job(jobs.Asked(), evolve(A, name=name)) for name in "abcd"]
    known = {"a": Pin(1, 5, 1), "b": Pin(1, 9, 1), "c": None, "d": Pin(9, 7, 9)}
    assert [job.name for job in command.longest_first(work, known)] == ["c", "b", "d", "a"]


def test_processes_do_not_change_the_result(catalogue, capsys):
    asked = ["--scope", "a", "--scope", "b", "--json"]
    one = explore(capsys, *asked)
    code = cli.main(["explore", "--processes", "2", *asked])
    assert (code, capsys.readouterr().out) == one[:2]


# --- depth, random runs, worlds -------------------------------------------------------------------------------------


def test_a_depth_is_no_matter_for_the_pins(catalogue, capsys):
    code, out, _ = explore(capsys, "--scope", "a", "--depth", 3, "--json")
    assert code == 0
    scope = json.loads(out)["scopes"][0]
    assert (scope["end"], scope["depth"]) == ("depth", 3)


def test_a_depth_that_nothing_reaches_is_compared_with_the_pins(catalogue, capsys):
    assert explore(capsys, "--scope", "a", "--depth", 500)[0] == 0
    pins.write({**catalogue, "a": evolve(catalogue["a"], edges=1)})
    code, out, _ = explore(capsys, "--scope", "a", "--depth", 500)
    assert code == 3
    assert f"not as pinned: a: edges {catalogue['a'].edges:,}, pinned 1" in out
    assert explore(capsys, "--scope", "a", "--depth", 3)[0] == 0


def test_random_runs_say_so(catalogue, capsys):
    code, out, _ = explore(capsys, "--scope", "b", "--random", 5, "--seed", 3)
    assert code == 0
    assert last_line(out) == "verdict: holds on 5 random runs of each scope"
    assert "sampled: random runs: nothing was exhausted" in out


def test_a_random_run_that_finds_a_fault_is_found_again_by_its_own_seed(catalogue, capsys):
    code, out, _ = explore(capsys, "--scope", "b", "--fault", "M-LRU-1", "--random", 50)
    assert code == 2
    line = last_line(out)
    assert line.startswith("kvproof explore --fault M-LRU-1 --law PC-8 --scope b --random 1 --seed ")
    code, again, _ = explore(capsys, *line.split()[2:])
    assert code == 2
    assert again.partition("does not hold")[2] == out.partition("does not hold")[2]


def test_worlds_have_a_column(catalogue, capsys):
    _, out, _ = explore(capsys, "--scope", "b", "--full")
    assert "worlds" in out
    _, said, _ = explore(capsys, "--scope", "b", "--full", "--json")
    scope = json.loads(said)["scopes"][0]
    assert scope["worlds"] > scope["orbits"]


# --- the document, wrong command lines ------------------------------------------------------------------------------


def test_the_document_for_programs(catalogue, capsys):
    code, out, error = explore(capsys, "--scope", "b", "--json", "--timing")
    assert (code, error) == (0, "")
    document = json.loads(out)
    assert document.pop("seconds") >= 0
    assert sorted(document) == [
        "counterexamples", "faults", "faults_without_a_scope", "format", "kvproof", "pins", "premise_never_true", "premises",
        "problems", "scopes", "situations_never_reached", "verdict", "version", "witnesses",
    ]  # fmt: skip
    assert (document["format"], document["version"], document["verdict"]) == ("kvproof-certificate", 1, "holds")
    scope = document["scopes"][0]
    assert sorted(scope) == [
        "bounds", "bytes_per_orbit", "closed", "depth", "edges", "end", "fault", "key_bytes", "kinds", "laws", "leaves_out", "levels",
        "not_reached", "orbits", "premise_never_true", "premises", "profile", "refusals", "runs", "scope", "settings",
        "verdict", "witnesses", "worlds",
    ]  # fmt: skip
    assert set(scope["witnesses"]) | set(scope["not_reached"]) == set(witnesses.NAMES)


# --- sets of scopes -------------------------------------------------------------------------------------------------


@pytest.fixture
def sets(catalogue, monkeypatch, tmp_path):
    """The scope b is the product, and another one stands beside the catalogue."""
    further = evolve(A, name="c", quick=False)
    monkeypatch.setattr(scopes, "CATALOGUE", (A,))
    monkeypatch.setattr(scopes, "FURTHER", (further,))
    monkeypatch.setattr(scopes, "PRODUCT", (B,))
    monkeypatch.setattr(pins, "PRODUCT", tmp_path / "product.json")
    pins.write({"a": catalogue["a"], "c": catalogue["a"]})
    pins.write({"b": catalogue["b"]}, pins.PRODUCT)


@pytest.mark.parametrize(("flag", "names"), [("--quick", ["a"]), ("--further", ["c"]), ("--product", ["b"])])
def test_a_set_of_scopes_is_explored_and_compared_with_its_pins(sets, capsys, flag, names):
    code, out, _ = explore(capsys, flag, "--json")
    document = json.loads(out)
    assert (code, document["problems"], document["pins"]) == (0, [], [])
    assert [scope["scope"] for scope in document["scopes"]] == names


def test_scopes_of_every_set_are_found_by_name(sets, capsys):
    code, out, _ = explore(capsys, "--scope", "b", "--scope", "c", "--scope", "a", "--json")
    assert (code, [scope["scope"] for scope in json.loads(out)["scopes"]]) == (0, ["b", "c", "a"])


def test_an_update_of_the_product_changes_its_own_file(sets, catalogue, capsys):
    before = pins.read()
    pins.write({"b": Pin(1, 1, 1), "gone": Pin(1, 1, 1)}, pins.PRODUCT)
    code, out, _ = explore(capsys, "--product")
    assert code == 3
    assert f"not as pinned: b: orbits {catalogue['b'].orbits:,}, pinned 1" in out
    assert "not as pinned: gone: pinned, but there is no such scope" in out
    assert last_line(out) == "kvproof explore --scope b --update"
    assert explore(capsys, *last_line(out).split()[2:])[0] == 0
    assert pins.read(pins.PRODUCT) == {"b": catalogue["b"]}
    assert pins.read() == before


def test_where_many_sizes_differ_the_update_names_the_set(sets, capsys, monkeypatch):
    monkeypatch.setattr(command, "NAMED", 0)
    pins.write({"b": Pin(1, 1, 1)}, pins.PRODUCT)
    assert last_line(explore(capsys, "--product")[1]) == "kvproof explore --product --update"


def test_a_fault_is_looked_for_in_all_scopes_of_a_set(sets, capsys):
    code, out, _ = explore(capsys, "--product", "--fault", "M-LRU-1", "--json")
    assert (code, [scope["scope"] for scope in json.loads(out)["scopes"]]) == (2, ["b"])


def test_a_fault_is_looked_for_in_the_quick_scopes_if_they_are_asked_for(sets, capsys, monkeypatch):
    monkeypatch.setattr(kills, "table", lambda: {"M-LRU-1": Kill("b", "PC-8", 8)})
    code, out, _ = explore(capsys, "--quick", "--fault", "M-LRU-1", "--json")
    assert (code, [scope["scope"] for scope in json.loads(out)["scopes"]]) == (2, ["a"])


def test_the_scopes_of_a_set_are_listed(sets, capsys):
    listed = [explore(capsys, *flags, "--scope", "list")[1].splitlines() for flags in ([], ["--further"], ["--product"])]
    assert [[line.split()[:2] for line in lines[:-1]] for lines in listed] == [
        [["a", "quick"], ["c", "further"]],
        [["c", "further"]],
        [["b", "product"]],
    ]


def test_a_set_without_scopes_holds_nothing(sets, capsys, monkeypatch):
    monkeypatch.setattr(scopes, "FURTHER", ())
    code, out, error = explore(capsys, "--further")
    assert (code, out) == (1, "")
    assert "there are no scopes in --further" in error


def test_scopes_are_listed_with_what_they_leave_out(catalogue, capsys):
    code, out, _ = explore(capsys, "--scope", "list")
    assert code == 0
    sizes = [f"{pin.orbits:,} orbits, {pin.edges:,} edges" for pin in catalogue.values()]
    assert out.splitlines() == [
        f"a  quick      full 1  {sizes[0]}",
        f"b  catalogue  full 1  {sizes[1]}",
        "what a scope leaves out: --scope list --scope NAME, or --json",
    ]
    code, out, _ = explore(capsys, "--scope", "list", "--scope", "b")
    assert (code, out.splitlines()[1:3]) == (
        0,
        ["  leaves out more than 1 requests", "  leaves out more than 1 of them alive at once"],
    )
    document = json.loads(explore(capsys, "--scope", "list", "--json")[1])
    assert [(one["scope"], one["set"], one["groups"]) for one in document] == [
        ("a", "quick", "full 1"),
        ("b", "catalogue", "full 1"),
    ]
    assert explore(capsys, "--scope", "list", "--scope", "zz")[0] == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--scope", "c"], "no scope 'c'"),
        (["--law", "XX-1"], "no law 'XX-1'"),
        (["--fault", "M-X"], "no fault 'M-X'"),
        (["--resume"], "--out DIR"),
        (["--quick", "--scope", "a"], "leave --scope out"),
        (["--product", "--scope", "a"], "leave --scope out, or --product"),
        (["--product", "--further"], "--further and --product choose the scopes"),
        (["--faults", "--product"], "--faults compares each fault with its pin"),
        (["--faults", "--depth", "3"], "--faults compares each fault with its pin"),
        (["--faults", "--scope", "a"], "no fault is pinned in a"),
        (["--update", "--random", "3"], "--update pins the sizes of whole graphs"),
        (["--full", "--fault", "M-LRU-1"], "--full counts whole graphs"),
        (["--depth", "0"], "0 is not in the range 1<=x<=10000"),
        (["--random", "1000000000"], "is not in the range 1<=x<=1000000"),
        (["--seed", "3"], "add --random N"),
    ],
)
def test_a_wrong_command_line_ends_with_1_and_says_what_to_do(catalogue, capsys, arguments, said):
    code, out, error = explore(capsys, *arguments)
    assert (code, out) == (1, "")
    assert said in error


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(catalogue, capsys, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(search, "explore", lambda *given: pytest.fail("explored"))
    code, _, error = explore(capsys, "--scope", "a", "--out", tmp_path / "file")
    assert code == 1
    assert "name a folder" in error


@pytest.mark.parametrize("name", ["certificate.json", "scope-b.json"])
def test_a_folder_where_a_result_belongs_is_found_before_the_work(catalogue, capsys, tmp_path, monkeypatch, name):
    (tmp_path / "out" / name).mkdir(parents=True)
    monkeypatch.setattr(search, "explore", lambda *given: pytest.fail("explored"))
    code, out, error = explore(capsys, "--scope", "a", "--scope", "b", "--out", tmp_path / "out")
    assert (code, out) == (1, "")
    assert f"{tmp_path / 'out' / name}: cannot be written: it is a folder" in error


def test_pins_that_cannot_be_written_are_found_before_the_work(catalogue, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(search, "explore", lambda *given: pytest.fail("explored"))
    monkeypatch.setattr(pins, "PRODUCT", tmp_path)
    code, out, error = explore(capsys, "--scope", "a", "--update")
    assert (code, out) == (1, "")
    assert f"{tmp_path}: cannot be written: it is a folder" in error
