"""docs/actions.md is what the docstrings of the actions say, and each says all of it."""

from __future__ import annotations

import re

import attrs
import pytest

from kvproof.core import actions as act
from kvproof.core.config import Group, Offload, configure
from kvproof.core.errors import Refusal
from kvproof.core.step import step
from kvproof.core.world import new_world
from kvproof.spec import cli
from kvproof.spec.conformance import action_page
from kvproof.spec.exits import ExitCode
from tests.tidy.sources import ROOT

PAGE = ROOT / "docs/actions.md"


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == action_page.as_markdown(), (
        "run `kvproof conform actions --write docs/actions.md`"
    )


def test_the_page_has_a_row_for_every_action_with_all_its_fields():
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert set(rows) == {kind.__name__ for kind in act.ACTIONS}
    for kind in act.ACTIONS:
        assert re.findall(r"`(\w+)", rows[kind.__name__]) == [field.name for field in attrs.fields(kind)]


@pytest.mark.parametrize("kind", act.ACTIONS, ids=[kind.__name__ for kind in act.ACTIONS])
def test_every_optional_field_is_explained(kind):
    """A field without a default is what the action is about; what may be left out has to be said."""
    told = action_page.told(kind)
    said = f"{told.what} {told.when} {told.do}"
    for field in attrs.fields(kind):
        if field.default is not attrs.NOTHING and field.name not in ("context", "skip_reading", "tokens"):
            assert f"``{field.name}``" in said, field.name


SAMPLES = {"request": 0, "tokens": (1, 2), "new_tokens": 1, "part": "copies", "blocks": (1,), "start": 0, "event": 0, "row": 0}


@pytest.mark.parametrize("kind", act.ACTIONS, ids=[kind.__name__ for kind in act.ACTIONS])
def test_what_is_said_to_need_a_host_tier_is_refused_without_one_for_that_reason(kind):
    world = new_world(configure((Group("full_attention", 4),), num_blocks=8))
    hosted = new_world(configure((Group("full_attention", 4),), num_blocks=8, offload=Offload()))
    action = sample(kind)
    assert (code(world, action) == "NoHostTier") == action_page.told(kind).hosted
    assert code(hosted, action) != "NoHostTier"


def code(world, action):
    """Return the kind of a refusal, nothing if the action is performed."""
    try:
        step(world, action)
    except Refusal as error:
        return type(error).__name__
    return ""


@pytest.mark.parametrize("kind", act.ACTIONS, ids=[kind.__name__ for kind in act.ACTIONS])
def test_when_an_action_is_said_to_come_is_when_the_model_does_not_refuse_its_phase(kind):
    """In an open plan, between plans, or once per plan behind another: everywhere else the phase is what is refused."""
    config = configure((Group("full_attention", 4),), num_blocks=8, offload=Offload())
    idle = new_world(config)
    plan, _ = step(idle, act.BeginStep())
    drained, _ = step(plan, act.Drain())
    built, _ = step(drained, act.BuildMetadata())
    action = sample(kind)
    worlds = {"idle": idle, "plan": plan, "drained": drained, "built": built}
    legal = {name for name, world in worlds.items() if code(world, action) != "PhaseError"}
    when = action_page.told(kind).when
    said = {"idle"} if re.search(r"between plans|outside an open plan", when) else set()
    said |= {"plan"} if "in an open plan" in when or "after its last" in when else set()
    said |= {"drained"} if "after ``Drain``" in when else set()
    said |= {"built"} if "after ``BuildMetadata``" in when else set()
    assert legal == (said or set(worlds))


def sample(kind):
    """Return an action of a kind, whose arguments need not fit any world."""
    if kind is act.AppendRows:
        return act.AppendRows(0, ((1,),))
    return kind(**{field.name: SAMPLES[field.name] for field in attrs.fields(kind) if field.default is attrs.NOTHING})


def test_a_docstring_that_leaves_a_part_out_is_refused():
    class Half:
        """An action.

        When: always.
        """

    with pytest.raises(ValueError, match="the docstring of Half"):
        action_page.told(Half)  # type: ignore[arg-type]  # it is no action


def test_the_command_lists_them_and_writes_the_page(tmp_path, capsys):
    assert cli.main(["conform", "actions"]) == ExitCode.HOLDS
    out = capsys.readouterr().out
    assert all(re.search(rf"^{kind.__name__}\(", out, re.MULTILINE) for kind in act.ACTIONS)
    assert cli.main(["conform", "actions", "--write", str(tmp_path / "actions.md")]) == ExitCode.HOLDS
    assert (tmp_path / "actions.md").read_text(encoding="utf-8") == action_page.as_markdown()
