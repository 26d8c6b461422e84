"""The host tier in `explain`: what it holds and offers, which rule removed the rest, where a load lands, what divergence costs."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from attrs import evolve

from kvproof.core import connectors
from kvproof.core.offload import external, lazy
from kvproof.spec.cli import main
from kvproof.spec.commands.check import wide_console
from kvproof.spec.deployments import catalogue, model, read
from kvproof.spec.deployments.schema import Deployment
from kvproof.spec.exits import ExitCode
from kvproof.spec.explain import answer, divergence, document, host_facts, host_text, host_words, hosts, rules
from kvproof.spec.explain.answer import Answer, Disagreement
from kvproof.spec.explain.hosts import HostAnswer, HostLookup
from tests.asking import FA, MAMBA, ask, connector, deployment, reason

CHUNKED = {"kind": "chunked_local", "block_size": 16, "window": 64}
EAGER, LAZY = {"mode": "eager"}, {"mode": "lazy"}


def hosted(of: Deployment, prompt: int, resend: int | None = None, **more: Any) -> tuple[Answer, HostAnswer]:
    """The answer and its part about the host."""
    found = ask(of, prompt, resend, **more)
    host = hosts.explain(found)
    assert host is not None
    return found, host


def pair(**settings: Any) -> Deployment:
    """FA16 and Mamba16 on two ranks, with an eager host tier unless it is given."""
    return deployment(FA, MAMBA, **{"dcp_size": 2, "host": EAGER, "retention": 0, "step_tokens": 2048, **settings})


def numbers(lookup: HostLookup) -> tuple[int, int, int, str, int]:
    """Local hit, start, offer, branch, resume."""
    asked = lookup.asked
    return asked.local, asked.behind, asked.offered, asked.accepted.branch, asked.resumes


# --- eager ----------------------------------------------------------------------------------------------------------


def test_what_a_prompt_leaves_on_the_host_and_what_it_is_worth() -> None:
    """G1 and G2 on two ranks: the state by its handoff, the block by the scan, the tail at the end; 48 with and without the device."""
    _, host = hosted(pair(), 50, 80)
    assert [(item.how, item.key[1], item.boundary, item.device, item.host) for item in host.stored] == [
        ("handoff", 1, 48, 3, 1),
        ("scan", 0, 32, 1, 2),
        ("tail", 0, 48, 2, 3),
    ]
    assert host.holds == (("full_attention", (32, 48)), ("mamba_align", (48,)))
    kept, gone = host.lookups
    assert numbers(kept) == (48, 32, 16, "tail kept", 48)
    assert numbers(gone) == (0, 0, 48, "behind the hit", 48)
    assert kept.landings == ()
    places = [(copy.group, copy.column, copy.start, copy.end, copy.host_block) for copy in gone.landings]
    assert places == [(0, 0, 0, 32, 2), (0, 1, 32, 48, 3), (1, 2, 48, 48, 1)]
    assert len({copy.device_block for copy in gone.landings}) == 3


def test_g3_where_the_load_of_g2_lands() -> None:
    """G2, G3: N=4, attention in the first entry, the state in the third, the block 2 of the host beside block 1."""
    _, host = hosted(pair(dcp_size=4), 50)
    gone = host.lookups[1]
    assert host.holds == (("full_attention", (48,)), ("mamba_align", (48,)))
    assert [(copy.group, copy.column, copy.start, copy.end, copy.host_block) for copy in gone.landings] == [
        (0, 0, 0, 48, 2),
        (1, 2, 48, 48, 1),
    ]


def test_more_tokens_than_the_tail_replace_it() -> None:
    """T14.3: the device has no state behind 80, the host one at 112: 48 tokens behind 64 take the place of a tail of 16."""
    _, host = hosted(pair(step_tokens=16, retention="dense"), 120, evicted=((1, 96), (1, 112)))
    kept = host.lookups[0]
    assert numbers(kept) == (80, 64, 48, "tail replaced", 112)
    assert "48 tokens reach further than the local tail of 16, which is given up" in host_words.branch(kept)
    assert [(copy.group, copy.column, copy.start, copy.end) for copy in kept.landings] == [
        (0, 2, 64, 96),
        (0, 3, 96, 112),
        (1, 6, 112, 112),
    ]


def test_states_that_the_device_lost_come_from_the_host() -> None:
    """The joint hit is 16, the host brings it to 64."""
    of = deployment(FA, MAMBA, host=EAGER, step_tokens=16)
    found, host = hosted(of, 64, 96, evicted=((1, 32), (1, 48), (1, 64)))
    assert found.joint == 16
    assert [numbers(lookup)[2:] for lookup in host.lookups] == [(48, "behind the hit", 64), (64, "behind the hit", 64)]
    local = reason(host.lookups[0].found, "full_attention", 16)
    assert (local.rule, local.text) == (rules.LOCAL, "the host is asked behind 16")


def test_a_load_that_does_not_fit_is_said_to_wait(capsys: pytest.CaptureFixture[str]) -> None:
    """An admission that was refused has no end: no numbers are claimed for it."""
    found, host = hosted(pair(), 50, 80)
    gone = host.lookups[1]
    waiting = evolve(host, lookups=(host.lookups[0], evolve(gone, asked=evolve(gone.asked, resumes=-1, pairs=()), landings=())))
    host_text.host(wide_console(), found, waiting)
    assert "the device pool is too small for the blocks of the load: it waits" in capsys.readouterr().out
    lookup = document.of_host(found, waiting)["lookups"][1]
    assert (lookup["resumes_at"], lookup["computed_again"], lookup["load"]) == (None, None, [])


def test_a_small_host_evicts_what_it_has() -> None:
    """Seven usable blocks: the scan of a finishing prompt takes the blocks that its earlier steps filled."""
    found, host = hosted(catalogue.find("unit-simplecpu"), 1000)
    assert (host.blocks, host.holds[1][1]) == (8, ())
    gone = host.lookups[1].found
    state = reason(gone, "Mamba", 960)
    assert (state.rule, state.text) == (
        rules.HOST_EVICTED,
        "the host block of 960 was reused by the first prompt, tokens 960 to 1,000",
    )
    assert reason(gone, "attention", 64).text == "the host block of 64 was reused when the first prompt finished"
    assert host_words.cause(found, host.lookups[1]).startswith("the host has nothing to offer behind 0: 0 because at 64")


@pytest.mark.parametrize("more", [{"between": 0}, {"mode": "lazy", "between": 100}])
def test_what_the_host_holds_is_never_called_evicted_or_not_copied(more: dict[str, Any]) -> None:
    """A boundary whose entry is there and whose prefix is not is a gap, which names the first missing boundary."""
    between, mode = more["between"], more.get("mode", "eager")
    blocks = 30 if between else None
    of = pair(host={"mode": mode, "blocks": 5 if between else 6}, step_tokens=2048 if between else 32)
    _, host = hosted(of, 200, 240, between=between, blocks=blocks)
    gone = host.lookups[1].found
    named = {
        boundary: why
        for boundary in host.holds[0][1]
        if (why := reason(gone, "full_attention", boundary)).rule not in (rules.ALIGNMENT, rules.NOT_SHARED)
    }
    assert named
    assert {why.rule for why in named.values()} == {rules.GAP}
    lost = rules.HOST_FULL if between else rules.HOST_EVICTED
    assert reason(gone, "full_attention", 32).rule == lost
    for why in named.values():
        assert why.text.startswith(f"it is on the host, the block up to 32 before it is not: {lost}, ")


def test_a_full_host_is_named() -> None:
    """Three states are handed over in one step and the host has room for two."""
    of = deployment({**MAMBA, "count": 3}, host={**EAGER, "blocks": 3}, step_tokens=64)
    _, host = hosted(of, 40)
    assert [(item.how, item.key[1], item.boundary) for item in host.stored] == [("handoff", 0, 32), ("handoff", 1, 32)]
    state = reason(host.lookups[1].found, "mamba_align 1-3", 32)
    assert (state.rule, state.text) == (rules.HOST_FULL, "no host block was free when the state of 32 was handed over")


def test_chunks_of_local_attention_that_do_not_begin_there_are_not_asked_for() -> None:
    """T20.3: C=64 does not divide the local hit of 32, so the host is not asked."""
    of = deployment(FA, CHUNKED, host=EAGER, step_tokens=16)
    found, host = hosted(of, 50, 80, evicted=((0, 48), (1, 48)))
    kept = host.lookups[0]
    assert numbers(kept) == (32, 32, 0, "no external", 32)
    assert host_words.cause(found, kept) == (
        "the host is not asked behind 32: chunks of local attention do not begin there (T20.3)"
    )


# --- lazy -----------------------------------------------------------------------------------------------------------


def test_lazy_hits_end_at_whole_scheduler_blocks() -> None:
    """T33, HB-8: the host has 48 of both groups, and offers nothing."""
    found, host = hosted(pair(host=LAZY), 50, 80, between=200, blocks=22)
    assert [(item.how, item.request) for item in host.stored] == [("lazy", 1)] * 3
    assert host.holds == (("full_attention", (32, 48)), ("mamba_align", (48,)))
    assert (host.alignment, host.lookups[1].finer) == (32, 48)
    gone = host.lookups[1]
    assert numbers(gone)[2:] == (0, "no external", 0)
    assert reason(gone.found, "mamba_align", 48).text == "no multiple of S = 32, which lazy mode asks for"
    assert reason(gone.found, "mamba_align", 32).rule == rules.NO_SNAPSHOT
    assert "It has 48, but in lazy mode external hits end at multiples of S = 32 (T33)." in host_words.cause(found, gone)


def test_lazy_mode_has_not_copied_what_is_far_from_reuse() -> None:
    """T33: nothing ran behind the first prompt, so nothing of what it held to its end was copied."""
    found, host = hosted(pair(host=LAZY, step_tokens=16, retention="dense"), 64)
    assert {(item.how, item.key[1]) for item in host.stored} == {("lazy", 1)}, "only states that were given up while it ran"
    block = reason(host.lookups[1].found, "full_attention", 32)
    assert (block.rule, block.text) == (rules.LAZY, "no step came to 32 on its walk over the next 6 blocks to be reused")
    assert host.target == lazy.target(found.config) == 6


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--prompt", "20000"], "and none ran after it: --between N lets another prompt run"),
        (
            ["--prompt", "20000", "--between", "9000"],
            "The pool of 93 blocks is so large that no block with a key came that near:",
        ),
        (["--prompt", "20"], "no block of the device has a key"),
        (["--prompt", "20000", "--between", "9000", "--blocks", "24"], None),
    ],
)
def test_lazy_mode_says_why_it_stored_nothing(more: list[str], said: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["explain", "--deployment", "kimi-k3-tp8-dcp8", "--host", "lazy", *more]
    assert main(asked) == ExitCode.HOLDS
    out = capsys.readouterr().out
    assert ("nothing was stored" in out) == (said is not None)
    assert main([*asked, "--json"]) == ExitCode.HOLDS
    why = json.loads(capsys.readouterr().out)["host"]["why_nothing_stored"]
    assert (why is None) == (said is None)
    if said is not None:
        assert said in why
        assert why in out


# --- not stored -----------------------------------------------------------------------------------------------------


def facts(**changes: Any) -> host_facts.HostFacts:
    """An empty eager host behind a device that had every key."""
    defaults: dict[str, Any] = {
        "mode": "eager",
        "keyed": frozenset(),
        "known": frozenset({(5, 0), (5, 1)}),
        "lost": {},
        "dropped": {},
        "full": False,
        "starved": frozenset(),
        "inside": True,
        "snapshots": (1,),
        "spans": (32, 16),
        "target": 0,
    }
    return host_facts.HostFacts(**(defaults | changes))


@pytest.mark.parametrize(
    ("changes", "key", "rule", "text"),
    [
        ({}, (7, 0), None, ""),
        ({}, (5, 0), rules.NOT_STORED, "the block of 48 was not stored"),
        ({}, (5, 1), rules.NOT_STORED, "no handoff offered the state of 48"),
        ({"inside": False}, (5, 0), rules.NOT_STORED, "48 lies inside a block, which is stored with fine-grained hits only"),
        ({"full": True}, (5, 0), rules.HOST_FULL, "no host block was free when the first prompt finished, 48 was left out"),
        ({"dropped": {(5, 1): "dropped_cpu_full"}}, (5, 1), rules.HOST_FULL, "no host block was free when the state of 48"),
        ({"dropped": {(5, 1): "skipped_in_flight"}}, (5, 1), rules.NOT_STORED, "the handoff of 48 was not stored (skipped_in"),
        ({"lost": {(5, 1): "by x"}}, (5, 1), rules.HOST_EVICTED, "the host block of 48 was reused by x"),
        ({"mode": "lazy", "starved": frozenset({(5, 1)})}, (5, 1), rules.HOST_FULL, "no host block was free any more"),
        ({"mode": "lazy", "target": 9}, (5, 1), rules.LAZY, "no step came to 48 on its walk over the next 9 blocks"),
    ],
)
def test_what_is_not_there_has_a_reason(changes: dict[str, Any], key: tuple[int, int], rule: str | None, text: str) -> None:
    why = facts(**changes).why(key, 48)
    assert (why is None) == (rule is None)
    if why is not None:
        assert why[0] == rule
        assert why[1].startswith(text)


# --- divergent hits -------------------------------------------------------------------------------------------------


def test_what_it_costs_not_to_serve_divergent_hits() -> None:
    """vllm#50344: attention to 64, states to 16: 48 tokens more to bring for a connector that is asked behind 16."""
    evicted = ((1, 32), (1, 48), (1, 64))
    for flag, words in (
        (False, "48 tokens that attention has are brought or computed again"),
        (True, "48 tokens less to bring"),
    ):
        of = deployment(FA, MAMBA, connectors=[connector(flag)], step_tokens=16)
        found = divergence.explain(ask(of, 64, 96, evicted=evicted))
        assert found is not None
        assert (found.capable, found.common, found.deep, found.behind_common, found.behind_deep) == (flag, 16, 64, 16, 64)
        assert found.tokens == 48
        assert words in host_words.divergence(found)


def test_without_a_difference_or_a_connector_nothing_is_claimed() -> None:
    of = deployment(FA, MAMBA, connectors=[connector(False)], step_tokens=16)
    same = divergence.explain(ask(of, 64, 96))
    assert same is not None
    assert (same.tokens, host_words.divergence(same)[:44]) == (0, "No recurrent group is behind full attention ")
    assert divergence.explain(ask(deployment(FA, MAMBA), 64)) is None
    assert divergence.explain(answer.geometry(of, 16)) is None


def test_a_host_tier_replaces_its_own_connector() -> None:
    """The entry of the host tier's connector in a deployment is not counted twice."""
    known = catalogue.find("kimi-k3-tp8-dcp8")
    assert known.settings.host is not None
    config = model.configure(known, 8, 16)
    assert (config.connectors, config.children) == ((), (False,))
    assert model.other_connectors(pair(connectors=[connector(True)])) == (True,)


def test_connectors_of_the_deployments_say_what_is_known_of_them() -> None:
    """T13: what a shipped deployment says of a connector is what its name stands for."""
    for known in catalogue.everything():
        for item in known.settings.connectors:
            assert item.divergent.value == connectors.supports_divergent_hits(connectors.Connector(item.name)), known.name


# --- rules and model agree ------------------------------------------------------------------------------------------


def some_groups(rng: random.Random) -> list[dict[str, Any]]:
    """One to four groups of small blocks."""
    found: list[dict[str, Any]] = [{"kind": "full_attention", "block_size": rng.choice([2, 4, 8])}]
    if rng.random() < 0.7:
        found.append({"kind": "mamba_align", "block_size": rng.choice([2, 4, 8])})
    if rng.random() < 0.4:
        found.append(
            {"kind": "sliding_window", "block_size": rng.choice([2, 4]), "window": rng.choice([3, 5, 9]), "sharded": False}
        )
    if rng.random() < 0.2:
        found.append({"kind": "mamba_stable", "block_size": rng.choice([2, 4])})
    return [{**group, "name": f"g{index}"} for index, group in enumerate(found)]


@pytest.mark.parametrize("seed", range(60))
def test_rules_and_model_agree_on_the_host(seed: int) -> None:
    """Every offer of the model is what the rules read from the keys; a disagreement is raised."""
    rng = random.Random(seed)
    host: dict[str, Any] = {"mode": rng.choice(["eager", "lazy"])}
    if rng.random() < 0.5:
        host["blocks"] = rng.choice([2, 4, 9, 20])
    settings = {
        "dcp_size": rng.choice([1, 2, 4]),
        "retention": rng.choice(["dense", 0]),
        "step_tokens": rng.choice([8, 16, 64]),
    }
    of = deployment(*some_groups(rng), host=host, eagle=rng.random() < 0.3, **settings)
    prompt, resend = rng.randrange(8, 70), rng.randrange(8, 90)
    shared = rng.randrange(0, min(prompt, resend) + 1) if rng.random() < 0.4 else min(prompt, resend)
    _, found = hosted(of, prompt, resend, shared=shared, between=rng.choice([0, 0, 40, 120]))
    assert [lookup.asked.device for lookup in found.lookups] == ["kept", "gone"]
    assert all(len(lookup.found.classes) >= 1 for lookup in found.lookups)


def test_a_disagreement_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    find = external.find_suffix

    def one_short(*arguments: Any) -> Any:
        length, lists = find(*arguments)
        return (length - 16, tuple(blocks[: (length - 16) // 16] for blocks in lists)) if length else (length, lists)

    monkeypatch.setattr(external, "find_suffix", one_short)
    with pytest.raises(
        Disagreement, match=r"the rules find 48 tokens on the host behind 48.*|the rules find 64 tokens .* the model 48"
    ):
        hosted(deployment(FA, host=EAGER, step_tokens=64), 64, 96)


# --- the command ----------------------------------------------------------------------------------------------------

UNIT = ["explain", "--deployment", "unit-offload", "--prompt", "50", "--resend", "80"]


def test_json_says_what_the_text_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*UNIT, "--host", "eager", "--json"]) == ExitCode.HOLDS
    found = json.loads(capsys.readouterr().out)
    assert main([*UNIT, "--host", "eager"]) == ExitCode.HOLDS
    shown = capsys.readouterr().out
    host = found["host"]
    assert (host["mode"], host["hits_end_at_multiples_of"], host["lazy_target"]) == ("eager", 16, None)
    assert [entry["by"] for entry in host["stored"]] == ["handoff", "scan", "tail"]
    assert host["holds"] == [
        {"name": "attention", "boundaries": [32, 48]},
        {"name": "Mamba", "boundaries": [48]},
    ]
    for lookup in host["lookups"]:
        assert lookup["branch_text"] in shown
        assert lookup["cause"] in shown
        assert lookup["resumes_at"] + lookup["computed_again"] == 80
    gone = host["lookups"][1]
    assert [(copy["group"], copy["column"], copy["host_block"]) for copy in gone["load"]] == [
        ("attention", 0, 2),
        ("attention", 1, 3),
        ("Mamba", 2, 1),
    ]
    assert [candidate["rule"] for candidate in gone["classes"][1]["candidates"]] == [
        "no snapshot",
        "no snapshot",
        "hit",
        "not shared",
        "cap",
    ]
    assert found["divergent_hits"]["why"] in shown


def test_the_host_tier_can_be_chosen_and_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    simple = ["explain", "--deployment", "unit-simplecpu", "--prompt", "200", "--json"]
    for more, mode, blocks in (
        ([], "eager", 8),
        (["--host", "lazy"], "lazy", 8),
        (["--host-blocks", "5"], "eager", 5),
        (["--host", "none"], None, None),
    ):
        assert main([*simple, *more]) == ExitCode.HOLDS
        host = json.loads(capsys.readouterr().out)["host"]
        assert (host and host["mode"], host and host["blocks"]) == (mode, blocks)
    assert main([*UNIT, "--host-blocks", "5"]) == ExitCode.ERROR
    assert "--host-blocks is the size of a host tier: add --host eager or --host lazy" in capsys.readouterr().err


def test_a_long_run_of_stores_is_cut_in_the_text_only(capsys: pytest.CaptureFixture[str]) -> None:
    long = ["explain", "--deployment", "unit-offload", "--host", "eager", "--prompt", "1500", "--step-tokens", "32"]
    assert main(long) == ExitCode.HOLDS
    assert "more lines; --json has every block" in capsys.readouterr().out
    assert main([*long, "--json"]) == ExitCode.HOLDS
    assert len(json.loads(capsys.readouterr().out)["host"]["stored"]) > 40


@pytest.mark.parametrize(
    ("given", "shown"),
    [((), "nothing"), ((4,), "4"), ((1, 2, 3), "1 to 3"), ((48, 32), "48, 32"), ((16, 32, 48, 50), "16 to 48 every 16, 50")],
)
def test_runs_of_numbers_are_put_together(given: tuple[int, ...], shown: str) -> None:
    assert host_words.ranges(given) == shown


@pytest.mark.parametrize("name", ["kimi-k3-tp8-dcp8", "qwen3.5-4b-tp8-dcp2", "unit-simplecpu"])
def test_the_deployments_with_a_host_tier_say_where_it_is_from(name: str) -> None:
    host = catalogue.find(name).settings.host
    assert host is not None
    assert (host.mode.value, host.mode.basis) == ("eager", "published")
    assert read.problems(catalogue.find(name)) == []
