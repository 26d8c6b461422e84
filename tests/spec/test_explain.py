"""What a second request can hit: worked numbers, one scenario per rule, and random agreement of the rules with the model."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from kvproof.core import kinds
from kvproof.spec import faults
from kvproof.spec.cli import main
from kvproof.spec.deployments import catalogue, read
from kvproof.spec.deployments.read import DeploymentError
from kvproof.spec.deployments.schema import Deployment
from kvproof.spec.exits import ExitCode
from kvproof.spec.explain import answer, rules, words
from kvproof.spec.explain.answer import Disagreement
from kvproof.spec.explain.rules import Reason
from kvproof.spec.explain.scenario import Question, ScenarioError
from tests.asking import FA, K3, MAMBA, SWA, ask, connector, deployment, reason
from tests.tidy.sources import ROOT
from tests.tidy.test_law_independence import forbidden

# --- the numbers of public reports ---------------------------------------------------------------------------------

FACTS = [
    pytest.param(known, fact, id=f"{known.name}-{fact.prompt}-{fact.gate.replace(' ', '-')}")
    for known in catalogue.everything()
    for fact in known.facts
]


@pytest.mark.parametrize(("known", "fact"), FACTS)
def test_the_known_hits(known, fact):
    """Every hit that a deployment file names, reported or following from a published rule."""
    more = {"shared": fact.shared} if fact.shared is not None else {}
    if fact.step_tokens is not None:
        more["step_tokens"] = fact.step_tokens
    assert ask(known, fact.prompt, fact.resend, closed=fact.gate == "closed", **more).joint == fact.hit


def test_there_are_known_hits_of_most_deployments():
    assert len(FACTS) >= 20
    assert sum(1 for known in catalogue.everything() if known.facts) >= 13


def test_kimi_k3_in_words(capsys):
    assert main(K3) == ExitCode.HOLDS
    out = capsys.readouterr().out
    assert "joint hit 43,008 of 44,609 tokens (96.4 %), 1,601 are computed again" in out
    assert (
        "43,008 with fine-grained hits; a closed gate would give 36,864: hits then end at multiples of S = 12,288 only" in out
    )
    assert "The gate of fine-grained hits (2.4) is open: all four conditions hold." in out


def test_kimi_k3_as_json(capsys):
    assert main([*K3, "--json"]) == ExitCode.HOLDS
    found = json.loads(capsys.readouterr().out)
    assert (found["joint_hit"], found["recomputed"]) == (43_008, 1601)
    assert found["lookup"] == {"local": 43_008, "diverged": False, "junction": 0}
    assert found["gate_closed"]["joint_hit"] == 36_864
    assert [chunk["end"] for chunk in found["chunks"]] == [12_288, 24_576, 36_864, 43_008, 44_449]
    mla, kda = found["classes"]
    assert (mla["groups"], kda["groups"]) == ([0], [1, 2, 3])
    by_boundary = {entry["boundary"]: entry["rule"] for entry in kda["candidates"]}
    assert list(by_boundary) == list(range(1536, 44_610, 1536))
    assert {boundary for boundary, rule in by_boundary.items() if rule == "retention"} == {12_288, 24_576, 36_864}
    assert by_boundary[43_008] == "hit"
    assert by_boundary[44_544] == "not shared"
    assert [row["row_bytes"] for row in found["geometry"]["groups"]] == [344, 2732, 2732, 2732]
    assert {size["symbol"]: size["value"] for size in found["geometry"]["sizes"]}["S"] == "12,288"


def test_kimi_k3_with_the_gate_closed():
    found = ask("kimi-k3-tp8-dcp8", 44_449, 44_609, closed=True)
    assert found.joint == 36_864
    assert reason(found, "KDA 1-3", 43_008) == Reason(rules.ALIGNMENT, "no multiple of A = 12,288")
    assert reason(found, "KDA 1-3", 24_576).rule == rules.RETENTION
    assert words.why_gate(found) == "closed because you asked for it: condition 2 fails"


def test_the_test_of_divergent_hits():
    """(False, 16, 6, 32) and (True, 0, 5, 16) of `test_hybrid_fa_deeper_hit_respects_connector_lookup_policy`."""
    evicted = tuple((1, boundary) for boundary in (32, 48, 64))
    found = ask("unit-divergent", 64, 96, evicted=evicted)
    assert (found.joint, found.local, found.diverged, found.junction) == (16, 16, False, 64)
    assert reason(found, "attention", 64) == Reason(rules.CONNECTOR, "Mamba: evicted, the key of 64 was taken away by --evict")
    raw = catalogue.source("unit-divergent").decode().replace("value = false", "value = true")
    found = ask(read.read_bytes(raw.encode(), "x.toml"), 64, 80, evicted=evicted)
    assert (found.joint, found.local, found.diverged) == (16, 64, True)
    assert reason(found, "attention", 48).rule == rules.DIVERGENT


def test_the_worked_scenarios_of_the_semantics():
    """T22's chunk ends, G6 and G7, M-GATE-1."""
    coarse = deployment({**FA, "block_size": 64}, {**MAMBA, "block_size": 64}, hash_block_size=16, step_tokens=1000)
    for prompt, ends in ((50, [48, 50]), (64, [48, 64]), (65, [64, 65]), (100, [64, 96, 100])):
        assert [chunk.end for chunk in ask(coarse, prompt).chunks] == ends
    eagle = deployment({**FA, "block_size": 64}, {**MAMBA, "block_size": 64}, hash_block_size=16, step_tokens=1000, eagle=True)
    assert ask(eagle, 100).joint == 80
    small = deployment({**FA, "block_size": 4}, {**MAMBA, "block_size": 4}, dcp_size=2, step_tokens=4)
    assert ask(small, 14, 16, shared=12).joint == 12
    lowered = ask(small, 14, 14, evicted=((1, 12),))
    assert (lowered.joint, lowered.junction) == (8, 12)
    gate = deployment(FA, MAMBA, dcp_size=2)
    assert (ask(gate, 50).joint, ask(gate, 50, closed=True).joint) == (48, 0)


# --- one scenario per rule ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "name", "boundary", "rule", "text"),
    [
        (lambda: ask("unit-offload", 96), "Mamba", 96, rules.CAP, "above n-1 = 95"),
        (lambda: ask("unit-offload", 60, 96), "Mamba", 64, rules.NOT_SHARED, "the first prompt ended at 60"),
        (lambda: ask("unit-offload", 96, 96, shared=40), "attention", 48, rules.NOT_SHARED, "differ behind 40 tokens"),
        (lambda: ask("unit-offload", 70, 90), "attention", 80, rules.NOT_SHARED, "the first prompt ended at 70"),
        (lambda: ask("unit-offload", 96, closed=True), "Mamba", 80, rules.ALIGNMENT, "no multiple of A = 32"),
        (lambda: ask("qwen3.8-27b-dflash7", 2048), "attention", 1792, rules.EAGLE, "keyed up to 1,792, of which 448"),
        (lambda: ask("unit-offload", 96), "Mamba", 32, rules.NO_SNAPSHOT, "no chunk of the first prompt ended here"),
        (lambda: ask("unit-offload", 96, step_tokens=32), "Mamba", 32, rules.RETENTION, "but retention 0 keeps 80 only"),
        (
            lambda: ask("unit-offload", 96, 96, shared=60),
            "attention",
            48,
            rules.NO_KEY,
            "inside a block only 80 was registered",
        ),
        (lambda: ask("unit-offload", 96), "attention", 48, rules.SHORTER, "the hit is 80"),
        (lambda: ask("unit-offload", 96), "attention", 80, rules.HIT, "every group can resume here"),
        (
            lambda: ask("unit-offload", 96, 96, shared=70),
            "attention",
            64,
            rules.OTHER_GROUP,
            "Mamba: no snapshot, no chunk of the first prompt ended here",
        ),
        (
            lambda: ask("qwen3.5-4b-tp8-dcp2", 5000, 5000, shared=4000),
            "attention",
            3536,
            rules.CONNECTOR,
            "DeltaNet 1-3: no snapshot",
        ),
        (
            lambda: ask("unit-offload", 96, between=200, blocks=20),
            "attention",
            96,
            rules.CAP,
            "above n-1 = 95",
        ),
        (
            lambda: ask("unit-offload", 96, between=200, blocks=10),
            "attention",
            32,
            rules.EVICTED,
            "the block of 32 was reused by the prompt in between, tokens 192 to 200",
        ),
        (
            lambda: ask(deployment(FA, MAMBA, step_tokens=16), 96, blocks=10),
            "mamba_align",
            16,
            rules.EVICTED,
            "the block of 16 was reused by the first prompt itself, tokens",
        ),
        (
            lambda: ask("unit-offload", 96, evicted=((0, 64),)),
            "attention",
            80,
            rules.EVICTED,
            "the key of 64 was taken away by --evict",
        ),
        (
            lambda: ask(deployment({**FA, "block_size": 64}, {**MAMBA, "block_size": 64}, hash_block_size=16), 100),
            "mamba_align",
            80,
            rules.NO_SNAPSHOT,
            "no chunk",
        ),
        (
            lambda: ask(
                deployment({**FA, "block_size": 64}, {**MAMBA, "block_size": 64}, hash_block_size=16, step_tokens=48), 130
            ),
            "mamba_align",
            48,
            rules.NO_KEY,
            "inside a block only the prompt's checkpoint 128 is registered",
        ),
        (
            lambda: ask(deployment(FA, SWA, retention=0), 200),
            "sliding_window",
            96,
            rules.RETENTION,
            "needs the block up to 96: retention 0 keeps 192 only",
        ),
        (
            lambda: ask(deployment(FA, SWA, retention=64, step_tokens=400), 200),
            "sliding_window",
            96,
            rules.RETENTION,
            "needs the block up to 96: retention 64 keeps its multiples and 192",
        ),
        (
            lambda: ask(deployment(FA, SWA, retention=64, step_tokens=400), 200),
            "sliding_window",
            128,
            rules.SHORTER,
            "the hit is 192",
        ),
        (
            lambda: ask(deployment(FA, {**SWA, "block_size": 32}, retention=0), 100),
            "full_attention",
            96,
            rules.HIT,
            "every group",
        ),
        (
            lambda: ask(deployment(FA, SWA, eagle=True), 200),
            "sliding_window",
            192,
            rules.EAGLE,
            "the block up to 208 would have to match and be given up",
        ),
        (
            lambda: ask(deployment(FA, {"kind": "chunked_local", "block_size": 16, "window": 64}), 100, evicted=((1, 80),)),
            "chunked_local",
            96,
            rules.EVICTED,
            "the key of 80",
        ),
        (
            lambda: ask(deployment(FA, {"kind": "chunked_local", "block_size": 16, "window": 64}, eagle=True), 100),
            "chunked_local",
            96,
            rules.EAGLE,
            "the block up to 112",
        ),
        (
            lambda: ask(deployment(FA, {"kind": "chunked_local", "block_size": 16, "window": 64}), 100, 200),
            "chunked_local",
            128,
            rules.OTHER_GROUP,
            "full_attention: not shared, needs the block up to 112: the first prompt ended at 100",
        ),
        (
            lambda: ask(deployment(FA, {"kind": "mamba_stable", "block_size": 16}), 100, evicted=((1, 64),)),
            "mamba_stable",
            64,
            rules.EVICTED,
            "the key of 64",
        ),
        (
            lambda: ask(deployment(FA, {"kind": "mamba_stable", "block_size": 48}), 100, 200),
            "full_attention",
            64,
            rules.ALIGNMENT,
            "no multiple of A = 48",
        ),
    ],
)
def test_the_rule_that_removed_a_boundary(found, name, boundary, rule, text):
    given = reason(found(), name, boundary)
    assert given.rule == rule
    assert text in given.text


def test_coarse_hits_leave_the_last_blocks_of_attention_unregistered():
    """S = 32, so of 117 tokens 96 are registered; a chunk of local attention that begins at 128 needs nothing."""
    local = {"kind": "chunked_local", "block_size": 16, "window": 8}
    found = ask(deployment(FA, local, {"kind": "mamba_stable", "block_size": 32}), 117, 164)
    assert found.joint == 96
    assert reason(found, "chunked_local", 128) == Reason(
        rules.OTHER_GROUP,
        "full_attention: no key, only whole scheduler blocks of the first prompt are registered, 96 tokens; "
        "mamba_stable: not shared, needs the block up to 128: the first prompt ended at 117",
    )


def test_blocks_that_were_never_computed_have_no_key():
    """Local attention alone: the first prompt, too, begins at a chunk of its own, and what lies before is skipped."""
    found = ask(deployment({"kind": "chunked_local", "block_size": 32, "window": 48}, step_tokens=300), 181, 184)
    assert found.chunks[0].start == 96
    assert reason(found, "chunked_local", 32) == Reason(rules.NO_KEY, "the block up to 32 was not registered")


def test_with_a_drafter_one_more_block_of_attention_is_registered():
    """S = 32, E = 8: of 127 tokens 96 and a block more (2.8)."""
    local = {"kind": "chunked_local", "block_size": 8, "window": 8}
    drafting = {"kind": "full_attention", "block_size": 8, "draft": True}
    found = ask(deployment(drafting, local, {"kind": "mamba_stable", "block_size": 32}, eagle=True), 127, 164)
    assert reason(found, "chunked_local", 128).text == (
        "full_attention: no key, only whole scheduler blocks of the first prompt are registered, 104 tokens; "
        "mamba_stable: not shared, needs the block up to 128: the first prompt ended at 127"
    )


def test_the_joint_hit_is_found_class_by_class():
    found = ask(deployment(FA, {**SWA, "window": 17}, MAMBA, dcp_size=1, retention=0), 200, 200, evicted=((2, 192),))
    names = [lowering.name for lowering in found.lowerings]
    assert names[:3] == ["full_attention", "sliding_window", "mamba_align"]
    assert [lowering.asked for lowering in found.lowerings][:2] == [199, 192]
    assert found.joint == 0
    assert found.lowerings[-1].hit == 0


# --- the cause ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (
            lambda: ask("kimi-k3-tp8-dcp8", 30_000, shared=20_000, step_tokens=12_288),
            "0 because KDA 1-3 cannot resume anywhere above it up to 12,288: at 7 boundaries from 1,536 to 10,752 (no snapshot: "
            "no chunk of the first prompt ended here), at 12,288 (retention: a chunk ended here, but retention 0 keeps 29,184 "
            "only). MLA alone could resume at 12,288; at 13,824 MLA cannot resume (no key: inside a block only 29,184 was "
            "registered, the first prompt's last boundary).",
        ),
        (lambda: ask("gpt-oss-120b", 1000), "992 because the next boundary, 1,008, is above n-1 = 999."),
        (
            lambda: ask(deployment(FA, MAMBA, SWA), 100, 200, evicted=((1, 96), (2, 96))),
            "64 because mamba_align cannot resume anywhere above it up to 96: at 80 (no snapshot: no chunk of the first prompt "
            "ended here), at 96 (evicted: the key of 96 was taken away by --evict); and sliding_window cannot resume at 96 "
            "(evicted: the key of 96 was taken away by --evict). full_attention alone could resume at 96; at 112 full_attention "
            "cannot resume (not shared: the first prompt ended at 100).",
        ),
    ],
)
def test_the_cause_of_the_hit(found, text):
    assert words.cause(found()) == text


def test_every_class_that_blocks_is_named_and_runs_are_split_by_who_blocks():
    found = ask(deployment(FA, MAMBA, SWA), 100, 200, evicted=((1, 96), (2, 96)))
    assert reason(found, "full_attention", 96).text == (
        "mamba_align: evicted, the key of 96 was taken away by --evict; "
        "sliding_window: evicted, the key of 96 was taken away by --evict"
    )
    other = [item for item in words.stretches(found.classes[0]) if item.rule == rules.OTHER_GROUP]
    assert [(item.first, item.last) for item in other] == [(80, 80), (96, 96)]


# --- the gate -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "holds", "why"),
    [
        ("kimi-k3-tp8-dcp8", (True, True, True, True), "open: all four conditions hold"),
        ("qwen3.5-4b", (True, True, False, True), "closed: condition 3 fails (DeltaNet 1-3 has bs = 528, H = 528)"),
        (
            "deepseek-r1-tp8-dcp8",
            (False, True, False, True),
            "closed: condition 1 fails (1 group); condition 3 fails (no such group)",
        ),
        ("gpt-oss-120b", (True, True, False, True), "closed: condition 3 fails (no such group)"),
        ("gemma-4-31b", (True, True, False, True), "closed: condition 3 fails (no such group)"),
    ],
)
def test_the_gate_says_which_condition_fails(known, holds, why):
    found = answer.geometry(catalogue.find(known), 1024)
    assert tuple(condition.holds for condition in found.conditions) == holds
    assert words.why_gate(found) == why


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (lambda: ask("qwen3.5-4b", 600), "H = S = 528, so the gate makes no difference."),
        (
            lambda: ask("unit-offload", 100, closed=True),
            "An open gate would not give more: no multiple of H = 16 is left up to 99.",
        ),
        (
            lambda: ask("unit-offload", 200, shared=70, closed=True),
            "The gate is closed because you asked for it: condition 2 fails: hits end at multiples of S = 32.",
        ),
        (lambda: ask("unit-offload", 100), None),
    ],
)
def test_the_gate_is_blamed_only_where_it_matters(found, line):
    assert words.gate_line(found(), None) == line


def test_a_closed_gate_with_the_same_hit_is_not_blamed():
    known = catalogue.find("unit-offload")
    found = ask(known, 100)
    closed = answer.compare_closed(known, found.question, found, None)
    assert words.gate_line(found, closed) == (
        "A closed gate would give the same hit: 96 is a multiple of S = 32, so the gate makes no difference here."
    )


def test_a_coarse_window_closes_the_gate():
    known = deployment(FA, MAMBA, {**SWA, "block_size": 32}, dcp_size=2)
    found = answer.geometry(known, 64)
    assert words.why_gate(found) == "closed: condition 4 fails (sliding_window: 32)"


@pytest.mark.parametrize(
    ("prompt", "why"),
    [
        (100, "96 is a multiple of S = 32, so the gate makes no difference here"),
        (50, "hits then end at multiples of S = 32 only, and 48 is none; at 32 Mamba has nothing: no snapshot"),
        (10, "nothing is hit either way"),
    ],
)
def test_the_closed_gate_is_compared(prompt, why):
    known = catalogue.find("unit-offload")
    found = ask(known, prompt)
    closed = answer.compare_closed(known, found.question, found, None)
    assert closed is not None
    assert words.why_closed(found, closed).startswith(why)


def test_a_closed_gate_may_hit_more():
    """Open, the state at 80 is kept, closed the one at 64; the second prompt shares 70 tokens."""
    known = catalogue.find("unit-offload")
    found = ask(known, 96, shared=70, step_tokens=32)
    closed = answer.compare_closed(known, found.question, found, None)
    assert closed is not None
    assert (found.joint, closed.joint) == (0, 64)
    assert words.why_closed(found, closed) == (
        "other states are kept then, and one of them lies at 64, in what the prompts share"
    )


def test_a_closed_gate_is_not_compared_with_itself():
    known = catalogue.find("qwen3.5-4b")
    found = ask(known, 600)
    assert answer.compare_closed(known, found.question, found, None) is None
    open_one = catalogue.find("unit-offload")
    asked = ask(open_one, 50, closed=True)
    assert answer.compare_closed(open_one, asked.question, asked, None) is None


# --- rules and model ----------------------------------------------------------------------------------------------


def random_deployment(rng: random.Random) -> Deployment:
    """Up to four groups of any kinds, any DCP size that they allow, with and without EAGLE and connectors."""
    groups: list[dict[str, Any]] = [{"kind": "full_attention", "block_size": rng.choice((4, 8, 16))}]
    for kind in rng.sample([*kinds.NAMES, "mamba_align"], rng.choice((0, 1, 1, 2, 3))):
        group: dict[str, Any] = {"kind": kind, "name": f"{kind} {len(groups)}", "block_size": rng.choice((4, 8, 16, 32))}
        group["count"] = rng.choice((1, 1, 2))
        if kinds.of(kind).CAPABILITIES.windowed:
            group["window"] = rng.choice((3, 8, 17, 24, 32))
        if kind == "full_attention":
            group |= {"sharded": rng.random() < 0.5, "draft": rng.random() < 0.5}
        elif kind == "mamba_align" and rng.random() < 0.3:
            group["speculative_blocks"] = 2
        groups.append(group)
    settings: dict[str, Any] = {"dcp_size": rng.choice((1, 1, 2, 4)), "max_model_len": 400, "eagle": rng.random() < 0.4}
    settings["connectors"] = [connector(rng.random() < 0.7) for _ in range(rng.choice((0, 0, 1, 2)))]
    settings["retention"] = rng.choice(("dense", 0, 0, 64, 128))
    return deployment(*groups, **settings)


def assert_the_cause_names_the_classes_that_end_the_hit(found: answer.Answer) -> None:
    """Every class that cannot resume at the next boundary within what some class reaches alone is named."""
    text = words.cause(found)
    assert text.startswith(f"{found.joint:,} because ")
    following = found.joint + found.config.alignment
    if following <= max(of_class.hit for of_class in found.classes):
        for of_class in found.classes:
            given = of_class.candidates[following // of_class.unit - 1]
            able = {rules.OTHER_GROUP, rules.CONNECTOR, rules.DIVERGENT}
            assert given.rule in able or f"{of_class.name} cannot resume" in text
            for name, rule in given.blocked:
                assert f"{name} cannot resume" in text
                assert rule in text or following > found.question.shared


@pytest.mark.parametrize("seed", range(6))
def test_rules_and_model_agree(seed):
    """``explain`` raises Disagreement wherever its rules and the model's lookup differ; evictions, drops, gates included."""
    rng = random.Random(seed)
    answered, hits, used = 0, 0, set()
    for _ in range(60):
        known = random_deployment(rng)
        prompt, resend = rng.randint(1, 200), rng.randint(1, 200)
        resend = prompt if rng.random() < 0.5 else resend
        shared = min(prompt, resend) if rng.random() < 0.6 else rng.randint(0, min(prompt, resend))
        question = Question(prompt, resend, shared, rng.choice((7, 16, 64, 300)), rng.choice((0, 0, rng.randint(1, 150))))
        blocks = None if rng.random() < 0.5 else rng.randint(10, 120)
        try:
            found = answer.explain(known, question, blocks=blocks, closed=rng.random() < 0.3)
        except (DeploymentError, ScenarioError):
            continue
        answered += 1
        hits += found.joint > 0
        used |= {item.rule for of_class in found.classes for item in of_class.candidates}
        assert_the_cause_names_the_classes_that_end_the_hit(found)
    assert answered > 25
    assert hits > 8
    assert len(used) >= 9


@pytest.mark.parametrize(("fault", "prompt", "shared"), [("M-HIT-1", 96, 96), ("M-HIT-2", 100, 70), ("M-GATE-1", 50, 50)])
def test_a_fault_of_the_model_is_noticed(fault, prompt, shared):
    known = deployment(FA, MAMBA, dcp_size=2)
    question = Question(prompt, prompt, shared, 96)
    answer.explain(known, question)
    (planted,) = (item for item in faults.ALL if item.id == fault)
    with faults.planted(planted), pytest.raises(Disagreement):
        answer.explain(known, question)


def test_a_disagreement_is_an_internal_error(capsys, monkeypatch):
    monkeypatch.setattr(answer, "fixed_point", lambda *_: (1, ()))
    assert main(K3) == ExitCode.ERROR
    err = capsys.readouterr().err
    assert "the rules give a hit of 1 (diverged: False), the model 43008 (False)" in err
    assert "Internal error in kvproof" in err


@pytest.mark.parametrize("file", ["rules.py", "view.py"])
def test_the_rules_call_no_lookup_and_no_geometry(file):
    assert forbidden(ROOT / "spec" / "explain" / file) == []


def test_every_kind_that_is_cached_has_a_reader_and_every_kind_an_engine_name():
    cached = {name for name in kinds.NAMES if kinds.of(name).CAPABILITIES.cacheable}
    assert set(rules.READERS) == cached
    assert set(words.ENGINE_KINDS) == set(kinds.NAMES)
