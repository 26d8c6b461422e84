"""Optional fields that an answer leaves out: what follows from the rest of what is shown, and what nobody knows.

The model's prediction is no answer. A field that is left out has a value only if the action, the configuration, or what was
shown beside it says which; what hangs on another one is hidden from the laws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.offload import choosing
from kvproof.core.records import NONE, Record
from kvproof.core.world import World
from kvproof.spec import ground
from kvproof.spec.conformance.adapter import Shows
from kvproof.spec.conformance.masks import FIELDS, OF_CONNECTORS

Said = Mapping[str, object]
NOTHING = Record("")
"""A record whose fields say nothing."""


def _nothing_handed_out(world: World, action: Action, said: Said) -> dict[str, Any]:
    """An allocation that is put off hands nothing out; one without a load copies nothing; who has run adopts nothing more."""
    assert isinstance(action, act.Allocate)
    if said.get("admitted") is False:
        return {"new_blocks": (), "external_blocks": (), "taken": (), "relocated": (), "adopted": (), "pairs": ()}
    found: dict[str, Any] = {} if action.load else {"pairs": ()}
    if not any(group.speculative_blocks for group in world.config.groups):
        found["relocated"] = ()  # only spare states move
    if not action.local and not action.external:
        found["adopted"] = ()
    return found


def _alone(world: World, action: Action, said: Said) -> dict[str, Any]:
    """With one group there is none whose hit is shorter than another's."""
    del action, said
    return {"diverged": False} if len(world.config.groups) == 1 else {}


def _nothing_built(world: World, action: Action, said: Said) -> dict[str, Any]:
    """A step without a store stores nothing, one without a load loads nothing, and only what was handed off has an outcome."""
    del action
    found: dict[str, Any] = {} if world.plan.drained else {"outcomes": ()}
    if not choosing.tracks_meta(world.config):
        found["store_meta"] = None
    if world.config.offload is None:
        return found
    if said.get("store_event") == NONE:
        found |= {"store_device": (), "store_host": (), "store_meta": None}
    if said.get("load_event") == NONE:
        found |= {"load_device": (), "load_host": (), "load_requests": ()}
    return found


def _arrived(world: World, action: Action, said: Said) -> dict[str, Any]:
    """Where nothing failed to arrive nothing is lost, and nobody starts again for it."""
    del world, said
    assert isinstance(action, act.Output)
    return {} if action.failed else {"preempted": (), "lost": 0}


def _without_steps(world: World, action: Action, said: Said) -> dict[str, Any]:
    """Blocks are held back for steps in flight, and prefixes of events kept where the configuration asks for them."""
    del action, said
    found: dict[str, Any] = {} if world.steps else {"deferred": False}
    return found if choosing.tracks_meta(world.config) else found | {"store_meta": None}


def _still_live(world: World, action: Action, said: Said) -> dict[str, Any]:
    """The blocks of a request that lives are not freed behind its load."""
    del said
    assert isinstance(action, act.CompleteLoad)
    return {} if ground.request_of(world, action.request) is None else {"freed": False}


FOLLOWING: dict[type[Action], Callable[[World, Action, Said], dict[str, Any]]] = {
    act.Lookup: _alone,
    act.Allocate: _nothing_handed_out,
    act.BuildMetadata: _nothing_built,
    act.Output: _arrived,
    act.Finish: _without_steps,
    act.CompleteLoad: _still_live,
}
"""Per action what follows from the world before it, the action, and the fields that are said."""


def following(world: World, action: Action, said: Said) -> dict[str, Any]:
    """Return the fields that an answer leaves out and that follow; ``world`` is the one before the action."""
    rule = FOLLOWING.get(type(action))
    found = {} if rule is None else rule(world, action, said)
    if not world.config.children:
        # Without a connector there is nothing of these.
        decided = FIELDS.get(type(action), {})
        found |= {name: getattr(NOTHING, name) for name, capability in decided.items() if capability in OF_CONNECTORS}
    return {name: value for name, value in found.items() if name not in said}


def unknown(config: Config, shows: Iterable[Shows], action: Action, known: Iterable[str]) -> list[str]:
    """Return the fields of an answer that declared capabilities would show and that nothing tells."""
    shown, there = frozenset(shows), frozenset(known)
    return [
        name
        for name, capability in FIELDS.get(type(action), {}).items()
        if capability in shown and name not in there and (config.children or capability not in OF_CONNECTORS)
    ]


IN_WORLDS: dict[type[Action], frozenset[str]] = {
    act.Lookup: frozenset(("junction",)),
    act.LookupExternal: frozenset(("notices",)),
    act.BuildMetadata: frozenset(FIELDS[act.BuildMetadata]) - {"flush", "outcomes"},
    act.Finish: frozenset(("store_meta",)),
}
"""Fields that stay in the world behind their action: left out once, what they put there is not known from then on."""
