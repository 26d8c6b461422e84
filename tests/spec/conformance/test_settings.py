"""Which setting explains what is shown: the ones that do, no other, and none where none does."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from attrs import evolve

from kvproof.core import config as configs
from kvproof.core.actions import Action, Submit
from kvproof.core.config import SOUND, VLLM_0_33_0, Config, Group, Offload, Profile, configure
from kvproof.core.world import World, new_world
from kvproof.spec import judge as judges
from kvproof.spec import laws
from kvproof.spec.conformance import settings
from kvproof.spec.conformance.settings import Explainer, Setting
from kvproof.spec.engines import scopes, walk
from kvproof.spec.exits import UserError
from kvproof.spec.judge import Violation
from kvproof.spec.laws.base import Evidence

PAIR = (Group("full_attention", 4), Group("mamba_align", 4))


def under(config: Config, **fields: Any) -> Config:
    return configs.reconfigure(config, profile=evolve(config.profile, **fields))


# --- settings -------------------------------------------------------------------------------------------------------


def test_every_profile_field_has_its_values() -> None:
    names = {field.name for field in attrs.fields(Profile)} - {"name"}
    assert settings.PROFILE_VALUES.keys() == names
    for name in names:
        assert {getattr(SOUND, name), getattr(VLLM_0_33_0, name)} <= set(settings.PROFILE_VALUES[name])
        assert len(settings.PROFILE_VALUES[name]) > 1


def test_candidates_are_what_a_configuration_does_not_have() -> None:
    plain = configure(PAIR)
    texts = {setting.text for setting in settings.candidates(plain)}
    assert {"removed_event=each_copy", "retention=0", "retention=4", "defer_block_free=true"} <= texts
    assert not {"removed_event=last_copy", "retention=none", "defer_block_free=false", "flush=first"} & texts
    assert "flush=before_forward" not in texts
    hosted = {setting.text for setting in settings.candidates(configure(PAIR, offload=Offload()))}
    assert {"flush=before_forward", "store_submission=next_step", "hold_loads=true", "resumed=last"} <= hosted - texts
    assert "hold_loads=false" not in hosted


def test_a_setting_applies_to_a_configuration_or_cannot() -> None:
    plain = configure(PAIR)
    each = Setting("profile", "removed_event", "each_copy").applied(plain)
    assert each is not None
    assert each.profile.removed_event == "each_copy"
    assert evolve(each, profile=plain.profile) == plain
    assert Setting("config", "retention", 3).applied(plain) is None
    assert Setting("offload", "flush", "before_forward").applied(plain) is plain
    late = Setting("offload", "flush", "before_forward").applied(configure(PAIR, offload=Offload()))
    assert late is not None
    assert late.parts[0] == "zero"
    assert Setting("free", "numbering", "own").applied(plain) is plain


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("removed_event=each_copy", Setting("profile", "removed_event", "each_copy")),
        (" prompt_tail = P ", Setting("profile", "prompt_tail", "P")),
        ("offload.flush=before_forward", Setting("offload", "flush", "before_forward")),
        ("hold_loads=true", Setting("offload", "hold_loads", True)),
        ("retention=none", Setting("config", "retention", None)),
        ("retention=64", Setting("config", "retention", 64)),
        ("eviction_order=own", Setting("free", "eviction_order", "own")),
    ],
)
def test_a_policy_is_read_and_written_back(text: str, setting: Setting) -> None:
    assert settings.parsed(text) == setting
    assert settings.parsed(setting.text) == setting


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("removed_event", "write field=value"),
        ("removed_events=each_copy", "did you mean removed_event"),
        ("removed_event=never", "it is last_copy or each_copy"),
        ("retention=-4", "no value '-4'"),
        ("hold_loads=maybe", "it is false or true"),
    ],
)
def test_a_policy_that_cannot_be_read_says_what_can_be_written(text: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        settings.parsed(text)


@attrs.define
class Declaring:
    profile: object = None
    policies: object = frozenset()


def test_what_an_adapter_declares_makes_its_configuration() -> None:
    hosted = configure(PAIR, offload=Offload(), num_blocks=30)
    assert settings.configured(hosted, settings.declared_by(object())) is hosted
    declared = settings.declared_by(Declaring("vllm-0.33.0", frozenset({"flush=before_forward"})), ["retention=0"])
    config = settings.configured(hosted, declared)
    assert config == configure(PAIR, offload=Offload(flush="before_forward"), num_blocks=30, retention=0, profile=VLLM_0_33_0)
    one = settings.configured(hosted, settings.declared_by(Declaring(policies=["removed_event=each_copy"])))
    assert one.profile == evolve(SOUND, name="declared", removed_event="each_copy")
    without = settings.configured(configure(PAIR), settings.declared_by(Declaring(policies=["flush=before_forward"])))
    assert without == configure(PAIR)


@pytest.mark.parametrize(
    ("declaring", "words"),
    [
        (Declaring("vllm-0.1"), "known: sound, vllm-0.33.0"),
        (Declaring(7), "a Profile or the name of one is needed"),
        (Declaring(policies="retention=0"), "a set of texts is needed"),
    ],
)
def test_what_is_declared_wrongly_is_refused(declaring: Declaring, words: str) -> None:
    with pytest.raises(UserError, match=words):
        settings.declared_by(declaring)


# --- explanations ---------------------------------------------------------------------------------------------------


def parts(world: World, action: Action, config: Config) -> dict[str, object]:
    """What the model does under a configuration, by name."""
    moment = judges.attempt(evolve(world, config=config), action)
    after = moment.after
    record = {} if moment.record is None else attrs.asdict(moment.record, recurse=False)
    return {**record, "pool": after.pool, "requests": after.requests, "plan": after.plan, "host": after.host}


class Shown:
    """An implementation that is the model under a hidden configuration, at one action: what differs from a prediction."""

    def __init__(self, world: World, action: Action, hidden: Config) -> None:
        self.world, self.action = world, action
        self.shown = parts(world, action, hidden)
        self.asked = 0

    def __call__(self, config: Config) -> frozenset[str]:
        self.asked += 1
        there = parts(self.world, self.action, config)
        return frozenset(name for name in there | self.shown if there.get(name) != self.shown.get(name))


def differing(scope: str, hidden: dict[str, Any], number: int = 0) -> tuple[Config, list[Shown]]:
    """The actions of walks at which a hidden setting makes a difference, always from the world of the plain one."""
    chosen = scopes.by_name(scope)
    config = chosen.config()
    other = under(config, **hidden)
    found: list[Shown] = []
    for walked in range(number, number + 6):
        world = new_world(config)
        for action in walk.walk(config, f"{walked}", 300, (), chosen.limits(config), 0).actions:
            shown = Shown(world, action, other)
            if shown(config):
                found.append(shown)
            world = judges.attempt(world, action).after
    return config, found


@pytest.mark.parametrize(
    ("scope", "field", "value"),
    [
        ("fa4-m4-n2-events", "removed_event", "each_copy"),
        ("fa4-m4-n2-events", "partial_parent", "hash"),
        ("fa4-m4-n2", "prompt_tail", "P"),
        ("m4-m8-fa2-n2", "recurrent_demand", "capped"),
        ("fa4-m4-n2", "zero_recurrent", "yes"),
        ("fa4-m4-n2-tight", "withdrawn_keys", "keep"),
    ],
)
def test_a_hidden_profile_field_is_named(scope: str, field: str, value: str) -> None:
    config, found = differing(scope, {field: value})
    assert found
    for shown in found[:8]:
        for what in shown(config):
            named = Explainer().explain(type(shown.action).__name__, what, config, shown)
            assert f"{field}={value}" in [setting.text for setting in named]


def test_what_no_setting_explains_has_none() -> None:
    config, found = differing("fa4-m4-n2-events", {"removed_event": "each_copy"})
    wrong = found[0]
    wrong.shown["events"] = ()
    if "events" not in wrong(config):
        wrong.shown["events"] = (1,)
    assert Explainer().explain("Allocate", "events", config, wrong) == ()


def test_a_setting_that_brings_another_difference_does_not_explain() -> None:
    config, found = differing("fa4-m4-n2-events", {"removed_event": "each_copy"})
    shown = found[0]
    each = Setting("profile", "removed_event", "each_copy")
    now = shown(config)
    assert settings.explains(each, "events", now, config, shown)
    assert not settings.explains(
        each, "events", now, config, lambda config: shown(config) | {"tables"} if config.profile != SOUND else now
    )
    assert not settings.explains(each, "events", now, config, lambda config: None)


def test_a_known_kind_is_explained_at_the_cost_of_one_prediction() -> None:
    config, found = differing("fa4-m4-n2-events", {"removed_event": "each_copy"})
    explainer = Explainer()
    first = explainer.explain("Allocate", "events", config, found[0])
    second = found[1]
    second.asked = 0
    assert explainer.explain("Allocate", "events", config, second) == first
    assert second.asked == 1 + len(first)


def test_after_some_failures_only_known_settings_are_tried() -> None:
    config, found = differing("fa4-m4-n2-events", {"removed_event": "each_copy"})
    wrong = found[0]
    wrong.shown["events"] = (1,)
    explainer = Explainer(patience=2)
    for _ in range(2):
        assert explainer.explain("Allocate", "events", config, wrong) == ()
    wrong.asked = 0
    assert explainer.explain("Allocate", "events", config, wrong) == ()
    assert wrong.asked == 1


def test_another_order_of_free_blocks_is_eviction_order() -> None:
    assert settings.reordered("device free queue", (1, 2, 3), (3, 1, 2))
    assert not settings.reordered("device free queue", (1, 2, 3), (3, 1))
    assert not settings.reordered("tables", (1, 2), (2, 1))


# --- violations -----------------------------------------------------------------------------------------------------


def test_the_field_that_bends_a_law_explains_its_violation() -> None:
    law = laws.by_id("EV-4")
    scope = scopes.by_name("fa4-m4-n2-events")
    config = scope.config()
    hidden = under(config, removed_event="each_copy")
    walked = (walk.walk(hidden, f"{number}", 300, (law,), scope.limits(config), 0, only="EV-4") for number in range(20))
    found = next(one for one in walked if one.violations)
    named = settings.bending(law, config, found.actions, found.violations[0])
    assert [setting.text for setting in named] == ["removed_event=each_copy"]
    elsewhere = Violation("EV-4", 0, Evidence.of("a key is removed that is not there"))
    assert settings.bending(law, config, found.actions, elsewhere) == ()
    assert settings.bending(law, hidden, found.actions, found.violations[0]) == ()
    assert settings.bending(laws.by_id("PC-1"), config, found.actions, found.violations[0]) == ()
    assert settings.broken(law, config, [*found.actions[:0], Submit(0, (1,))]) == []
