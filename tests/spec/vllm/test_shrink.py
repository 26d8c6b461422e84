"""Shrinking a case with a pretended release: what does not matter goes, what matters stays, within a bound of runs."""

import json

import msgspec
import pytest
from attrs import evolve

from kvproof.spec.traces.format import Config
from kvproof.spec.vllm import scope_parts, scopes, scripts, shrink
from kvproof.spec.vllm.runs import Breach, Case, Outcome

LAW = "HB-1"


def recording(script):
    """Lines as a release would write them: one per operation, a settle as a step and its update."""
    rows = [{"format": "kv-trace"}, {"i": 0, "op": "init", "args": {}, "result": {}}]
    count = 0
    for op in script:
        if op[0] == "submit":
            name = op[4] if len(op) > 4 else f"r{count}"
            count += 1
            args = {"request": name, "tokens": list(op[1]), "max_tokens": op[2], "priority": op[3]}
            rows.append({"op": "submit", "args": args, "result": {}})
        elif op[0] == "settle":
            rows.append({"op": "step", "args": {}, "result": {}})
            rows.append({"op": "update", "args": {"step": 1, "sampled": {"r0": [5]}}, "result": {"next_drafts": {}}})
        elif op[0] == "update":
            sampled = op[1] if isinstance(op[1], dict) else {}
            rows.append({"op": "update", "args": {"step": 1, "sampled": sampled}, "result": {"next_drafts": {}}})
        elif op[0] == "reset":
            rows.append({"op": "reset", "args": {"preempt_running": op[1], "host": op[2]}, "result": {"ok": True}})
        elif op[0] == "abort":
            rows.append({"op": "abort", "args": {"request": str(op[1])}, "result": {}})
        elif op[0] == "complete_store":
            rows.append({"op": "complete_store", "args": {"event": 0, "acks": op[1]}, "result": {"done": True}})
        else:
            rows.append({"op": op[0], "args": {}, "result": {}})
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


class Pretended:
    """A release that breaks the law where a prompt of nine tokens or more follows a reset, if it has a recurrent group."""

    def __init__(self):
        self.runs = 0

    def __call__(self, case):
        self.runs += 1
        recurrent = any(group.kind == "mamba" for group in case.scope.config.groups)
        reset = -1
        lines = recording(case.script)
        for at, row in enumerate(json.loads(line) for line in lines.splitlines()[1:]):
            if row["op"] == "reset" and reset < 0:
                reset = at
            if recurrent and reset >= 0 and row["op"] == "submit" and len(row["args"]["tokens"]) >= 9:
                return Outcome(case, lines=lines, breaches=(Breach(LAW, at, "it is so"),))
        return Outcome(case, lines=lines)


def noisy(name="m4-fa4-m4-n2-eager-tiny", seed=0):
    """A case with a reset and a long prompt somewhere in the middle of much else."""
    scope = scopes.by_name(name)
    script = scripts.generate(scope.config, f"{seed}", 60)
    middle = len(script) // 2
    return Case(scope, (*script[:middle], ("reset", False, False), ("submit", list(range(50, 80)), 3, 1), *script[middle:]))


@pytest.mark.parametrize("seed", range(4))
def test_only_what_breaks_the_law_is_left(seed):
    play = Pretended()
    smallest = shrink.shrink(play, play(noisy(seed=seed)), LAW)
    script, config = smallest.case.script, smallest.case.scope.config
    assert [op[0] for op in script] == ["reset", "submit"]
    assert script[1][1:4] == ([1, 2, 3, 4, 5, 6, 7, 8, 9], 1, 0)
    assert [group.kind for group in config.groups] == ["mamba"]
    assert (config.host, config.dcp_world_size) == (None, 1)
    assert config.scheduler is not None
    assert config.scheduler.policy == "fcfs"
    assert smallest.broken(LAW) is not None
    assert play.runs <= shrink.MAX_RUNS + 1


def test_the_number_of_runs_is_bounded():
    play = Pretended()
    first = play(noisy())
    smallest = shrink.shrink(play, first, LAW, max_runs=10)
    assert play.runs <= 11
    assert smallest.broken(LAW) is not None
    assert shrink.cost(smallest.case) <= shrink.cost(first.case)


def test_what_does_not_repeat_comes_back_as_it_was():
    first = Pretended()(noisy())
    again = shrink.shrink(lambda case: Outcome(case), first, LAW)
    assert again == first


def test_a_candidate_that_a_release_cannot_run_is_not_taken():
    play = Pretended()

    def only_two_ranks(case):
        outcome = play(case)
        return outcome if case.scope.config.dcp_world_size == 2 else evolve(outcome, unsupported="no")

    smallest = shrink.shrink(only_two_ranks, play(noisy()), LAW)
    assert smallest.case.scope.config.dcp_world_size == 2


def test_a_settle_is_spelled_out_with_the_tokens_that_were_sampled():
    script = (("submit", [1, 2], 1, 0), ("settle",), ("reset", False, True))
    assert shrink.spelled(recording(script)) == (
        ("submit", [1, 2], 1, 0, "r0"),
        ("step",),
        ("update", {"r0": [5]}, {}),
        ("reset", False, True),
    )


@pytest.mark.parametrize("scope", scopes.ALL, ids=lambda scope: scope.name)
def test_plainer_configurations_are_legal_and_have_less(scope):
    for config in shrink.plainer(scope.config):
        assert shrink.features(config) < shrink.features(scope.config)
        assert scope_parts.resolved(config) == config
        msgspec.json.decode(msgspec.json.encode(config), type=Config)
