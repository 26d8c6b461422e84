"""Adapters that show a part and nothing beside it, and what such implementations may do otherwise."""

from __future__ import annotations

from typing import Any

from attrs import define, evolve, field

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.spec.conformance.adapter import Observation, Shows
from kvproof.spec.conformance.budget import Budget
from kvproof.spec.conformance.isolation import Direct
from kvproof.spec.conformance.masks import FIELDS
from kvproof.spec.conformance.reference import ModelAdapter
from kvproof.spec.conformance.search import Search, Searched
from kvproof.spec.engines import scopes
from kvproof.spec.laws.base import Law


@define
class Bare:
    """The model behind an adapter that shows what it declares and nothing else: no status, no count of a request."""

    inner: ModelAdapter
    name: str = "bare"
    null_block: int = 0
    shows: frozenset[Shows] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.shows, self.null_block = self.inner.shows, self.inner.null_block

    def start(self, config: Config) -> None:
        self.inner.start(config)

    def perform(self, action: Action) -> Observation:
        shown = self.inner.perform(action)
        requests = shown.state.requests
        if requests is not None:
            bare = {name: evolve(said, computed=None, in_flight=None, status=None) for name, said in requests.items()}
            shown = evolve(shown, state=evolve(shown.state, requests=bare))
        known = FIELDS.get(type(action), {})
        assert all(known.get(name, Shows.EVENTS) in self.shows for name in shown.result)
        return shown

    def geometry(self, config: Config) -> Any:
        return self.inner.geometry(config)


@define
class Forgetful(Bare):
    """Finds less than there is: every other request does not read the cache."""

    def perform(self, action: Action) -> Observation:
        if isinstance(action, act.Submit) and action.request % 2:
            action = evolve(action, skip_reading=True)
        return super().perform(action)


@define
class Silent(Bare):
    """Publishes no boundary state: nothing waits, and every step is handed none. ``waiting``: it shows that nothing waits."""

    waiting: bool = True

    def perform(self, action: Action) -> Observation:
        shown = super().perform(action)
        none = {name: () for name in ("handoffs", "outcomes") if name in shown.result}
        state = evolve(shown.state, handoffs=() if self.waiting else None)
        return evolve(shown, result={**shown.result, **none}, state=state)


def search(
    adapter: Any, judged: tuple[Law, ...], *names: str, walks: int = 2, steps: int = 250
) -> tuple[Search, list[Searched]]:
    """Search with an adapter in this process."""
    made = Search(Direct(adapter), judged, budget=Budget(walks, steps))
    return made, [made.scope(scopes.by_name(name)) for name in names]
