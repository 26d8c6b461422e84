"""What a scope says that it leaves out, bound by bound."""

from __future__ import annotations

import re
from typing import Any

import attrs
import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import config as configs
from kvproof.core.config import Offload
from kvproof.spec.engines.scope_parts import full
from kvproof.spec.exploring import scopes
from kvproof.spec.exploring.bounds import DISTURBANCES, Bounds

NARROW = Bounds(("ab",))
SETTINGS: dict[str, Any] = {"max_model_len": 4, "num_blocks": 5, "max_running": 1}


def sized(**more: Any) -> dict[str, Any]:
    """The usual sizes, and others."""
    return {**SETTINGS, **more}


PLAIN = configs.configure((full(1),), **SETTINGS)
HOST = configs.configure((full(1),), **sized(offload=Offload(num_blocks=4)))
BOTH = configs.configure((full(1),), **sized(offload=Offload(num_blocks=4), connectors=(False,)))
DRAFTS = configs.configure((full(1),), **sized(num_draft_tokens=3))


def changes(config, **wider):
    """Return what is said no more, and what is said instead, if bounds are changed."""
    before, after = NARROW.leaves_out(config), evolve(NARROW, **wider).leaves_out(config)
    return [text for text in before if text not in after], [text for text in after if text not in before]


@pytest.mark.parametrize(
    ("config", "wider", "gone"),
    [
        (PLAIN, {"submits": 3}, "more than 2 requests"),
        (PLAIN, {"live": 3}, "more than 2 of them alive at once"),
        (PLAIN, {"prompts": ("a",)}, "prompts other than ab"),
        (PLAIN, {"outputs": 2}, "more than 1 sampled tokens"),
        (PLAIN, {"alphabet": (0, 1, 2)}, "tokens other than 0, 1; contexts other than 0"),
        (PLAIN, {"contexts": (0, 1)}, "tokens other than 0, 1; contexts other than 0"),
        (PLAIN, {"at_most": {act.Preempt: 1}}, "any Preempt"),
        (PLAIN, {"chunks": "every"}, "chunks shorter than"),
        (PLAIN, {"execution": "any"}, "anything between the parts of a step"),
        (PLAIN, {"lookahead": (0, 2)}, "slots ahead of an allocation other than 0"),
        (PLAIN, {"gates": (False, True)}, "admissions that ask for their full sequence first"),
        (PLAIN, {"gates": (True,)}, "admissions that ask for their full sequence first"),
        (PLAIN, {"reserved": (0, 1)}, "blocks that an admission leaves free for others other than 0"),
        (PLAIN, {"skip_reading": True}, "requests that do not read the cache"),
        (PLAIN, {"failures": True}, "loads and connectors that fail"),
        (PLAIN, {"strays": True}, "reports of stores that nobody knows"),
        (PLAIN, {"refusals": True}, "attempts that must be refused"),
        (BOTH, {"external": False}, "behind tokens that a connector brings, chunks but the two longest"),
    ],
)
def test_what_a_bound_leaves_out_is_said_as_long_as_it_does(config, wider, gone):
    missing, _ = changes(config, **wider)
    assert len(missing) == 1
    assert missing[0].startswith(gone)


@pytest.mark.parametrize(
    ("config", "narrower", "said"),
    [
        (PLAIN, {"depth": 7}, "runs of more than 7 actions"),
        (PLAIN, {"at_most": {act.Lookup: 0}}, "any Lookup"),
        (PLAIN, {"at_most": {act.Lookup: 3}}, "more than 3 Lookup"),
        (PLAIN, {"stores": "prompt"}, "anything between the submission of a store"),
        (HOST, {"starts": "behind"}, "external lookups elsewhere"),
        (BOTH, {"external": False}, "tokens that a connector brings into an allocation"),
        (PLAIN, {"at_most": {act.EvictBlocks: 1}}, "evictions of more than two blocks"),
        (PLAIN, {"at_most": {act.AppendRows: None}}, "appended rows but"),
        (PLAIN, {"refusals": True}, "of what must be refused, all but an example"),
        (HOST, {"failures": True}, "failed loads with other amounts"),
        (PLAIN, {"chunks": "every"}, "chunks but whole ones"),
    ],
)
def test_what_is_bounded_more_is_said(config, narrower, said):
    _, new = changes(config, **narrower)
    assert any(text.startswith(said) for text in new)


def test_what_the_configuration_never_does_is_not_said():
    plain = " ".join(NARROW.leaves_out(PLAIN))
    assert "connector brings" not in plain
    assert "part of a hit" not in plain
    assert "drafts that are not" not in plain
    assert "loads of a part of a hit" in " ".join(NARROW.leaves_out(HOST))
    assert "drafts that are not of one token alone" in " ".join(NARROW.leaves_out(DRAFTS))


def test_every_bound_is_spoken_of():
    """A field that no test above widens or narrows would be one that the list forgets."""
    both: tuple[Any, ...] = (test_what_a_bound_leaves_out_is_said_as_long_as_it_does, test_what_is_bounded_more_is_said)
    tested = {name for test in both for mark in test.pytestmark for _, wider, _ in mark.args[1] for name in wider}
    assert tested == {field.name for field in attrs.fields(Bounds)}


def test_every_disturbance_is_named_or_counted_in_every_scope():
    for scope in scopes.every():
        said = scope.leaves_out()
        for kind in DISTURBANCES:
            pattern = rf"(any|more than \d+) {kind.__name__}$"
            assert any(re.match(pattern, text) for text in said) or scope.bounds.at_most.get(kind, 0) is None
