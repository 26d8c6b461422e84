"""The shadow: the model follows an implementation, and every action becomes the moment that laws judge.

The model predicts; what the implementation shows replaces the prediction; what it does not show is hidden from the laws. So a
difference from the model is no violation by itself: the laws look at what was observed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from attrs import define, evolve, fields_dict, frozen

from kvproof.core import actions as act
from kvproof.core import config as configs
from kvproof.core.actions import Action
from kvproof.core.config import Config, Profile
from kvproof.core.errors import ContractBroken, Refusal
from kvproof.core.offload import choosing
from kvproof.core.records import Record
from kvproof.core.world import Status, World, new_world
from kvproof.spec import ground, judge, near
from kvproof.spec.conformance import answers, carrying, certainty, leftout, override, predict
from kvproof.spec.conformance.adapter import AdapterError, HostState, Observation, PoolState, Shows, State
from kvproof.spec.conformance.differences import Difference, Noting
from kvproof.spec.conformance.forms import Forms
from kvproof.spec.conformance.hidden import Hidden, is_hidden
from kvproof.spec.conformance.masks import COURSE, FIELDS, LOST, PLAN, REQUIRED, WAITING, Mask
from kvproof.spec.conformance.override import Overriding
from kvproof.spec.conformance.reading import Lists, Reader
from kvproof.spec.laws.base import Moment

RECORD: frozenset[str] = frozenset(fields_dict(Record)) - {"action"}
MAY_BE_NONE = ("store_meta", "offered")
"""Fields whose value may be none; of any other one None says that it is left out."""
MOVING = (act.RunStore, act.RunLoad, act.CompleteStore, act.CompleteLoad, act.Promote)
"""Actions on transfers that are under way."""


@frozen(slots=True)
class Seen:
    """One action of an implementation: the moment for the laws, what the model had predicted otherwise, and what makes
    following it unsure, in words.

    ``followed`` is the same moment with nothing hidden: of the world that the shadow goes on with, for who drives the adapter.
    """

    moment: Moment
    followed: Moment
    differences: tuple[Difference, ...] = ()
    problems: tuple[str, ...] = ()


@define(slots=True, init=False)
class Shadow:
    """Follows one run of an implementation from the beginning.

    ``world`` is complete: what is not shown in it is the model's prediction. Where the implementation does what the model
    refuses, or the reverse, the moment says what the implementation did, and the world goes on with what is shown.
    """

    config: Config
    shows: frozenset[Shows]
    world: World
    mask: Mask
    reader: Reader
    _forms: Forms
    _overriding: Overriding
    _partial: bool
    guess: str
    """The capability that a decision of the past hangs on: from there on the run is a guess. Empty if there is none."""
    _judged: World
    _looked: bool

    def __init__(
        self,
        config: Config,
        shows: Iterable[Shows],
        null_block: int = 0,
        profile: Profile | None = None,
        *,
        partial: bool = False,
    ) -> None:
        """Begin a run. ``profile`` is that of the prediction if it is not the configuration's; ``null_block`` the adapter's.

        ``partial``: what is declared is shown at some actions and not at others (a recording shows states where operations
        end); between them the prediction stands.
        """
        if profile is not None and profile != config.profile:
            config = configs.reconfigure(config, profile=profile)
        reader = Reader.of(config, null_block)
        world = new_world(config)
        mask = Mask.of(config, shows)
        self.config, self.shows, self.world, self.mask, self.reader = config, mask.shows, world, mask, reader
        self._overriding, self._judged, self._looked = Overriding(reader), mask.world(world), False
        self._forms, self._partial, self.guess = Forms.of(config), partial, ""

    def outward(self, action: Action) -> Action:
        """Return an action of the followed world as the implementation has to be given it: in its own block ids."""
        return self.reader.outward(action)

    def observe(self, action: Action, observation: Observation) -> Seen:
        """Take in what came of one action. Raises AdapterError if the adapter does not show what it declares."""
        if not self._partial:
            self._check(action, observation)
        noting, problems = Noting(), []
        predicted = self._predict(action, observation)
        admitted = self._admitted(action, predicted, observation)
        predicted = self._leniently(action, observation, predicted, admitted, noting)
        refusal = _refusal(action, predicted, observation, self.shows)
        start = predicted.after
        if observation.refusal is None and predicted.refusal is not None:
            noting.differs("refusal", predicted.refusal.message, None)
            problems.append(f"the model refuses it: {predicted.refusal.message}")
            if admitted is False:
                start = evolve(self.world, hit=None)
            else:
                start = carrying.carried_on(self.world, action)
                self._lose(action)
        elif observation.refusal is not None and predicted.refusal is None:
            noting.differs("refusal", None, observation.refusal)
            start = self.world
        elif isinstance(action, act.Allocate):
            start = self._decided(action, predicted, admitted)
        if not self._partial and not problems:
            try:
                self._check_requests(action, start, observation.state)
            except AdapterError as error:
                # An action that was refused and half done leaves a state that nothing follows: the refusal is what is wrong.
                if observation.refusal is None:
                    raise
                problems.append(f"refused ({observation.refusal}), and yet: {error}")
        followed, judged = self._states(start, observation.state, noting)
        whole = shown = None
        if refusal is None:
            followed, judged, whole, shown = self._answer(action, predicted, observation, admitted, followed, judged, noting)
        if observation.refusal is None and not self.guess:
            self.guess = self._guessed(action, predicted, admitted)
        moment = self._guess(action) if self.guess else self._masked(action, shown, refusal, judged)
        told = predicted.refusal if is_hidden(refusal) else refusal
        complete = Moment(self.world, action, whole, told, followed)
        self.world = followed
        return Seen(moment, complete, tuple(noting.found), tuple(problems))

    # --- prediction ---------------------------------------------------------------------------------------------------

    def _leniently(
        self, action: Action, observation: Observation, predicted: Moment, admitted: bool | None, noting: Noting
    ) -> Moment:
        """Return what the model makes of an action that the implementation performed and the model put off or failed at."""
        refusal, record = predicted.refusal, predicted.record
        if observation.refusal is not None:
            return predicted
        if refusal is not None and judge.is_internal(refusal):
            whole = predict.mended(self.world, action, self._hints(action, observation))
            if whole is not None and whole.record is not None and whole.record.admitted is not False:
                noting.differs("refusal", refusal.message, None)
                return whole
        if not isinstance(action, act.Allocate | act.Output):
            return predicted
        put_off = record is not None and record.admitted is False and admitted is True
        if not put_off and not isinstance(refusal, ContractBroken):
            return predicted
        other = predict.leniently(self.world, action, self._hints(action, observation))
        if other.record is None or other.record.admitted is False:
            return predicted
        if record is None:
            noting.differs("refusal", None if refusal is None else refusal.message, None)
        else:
            noting.differs("admitted", record.admitted, other.record.admitted)
        return other

    def _predict(self, action: Action, observation: Observation) -> Moment:
        return predict.predict(self.world, action, self._hints(action, observation))

    def _hints(self, action: Action, observation: Observation) -> predict.Hints:
        """Return what tells which blocks an implementation took."""
        result: dict[str, object] = {}
        tables: Lists | None = None
        references: tuple[int, ...] | None = None
        if isinstance(action, act.Allocate):
            said = (observation.state.requests or {}).get(action.request) if Shows.TABLES in self.shows else None
            if said is not None and said.tables is not None:
                tables = self.reader.tables(action.request, said.tables)
            if Shows.ADMISSION in self.shows:
                result = self.reader.blocks(observation.result, ("taken", "new_blocks", "external_blocks"))
            if Shows.REFERENCES in self.shows and observation.state.device.references is not None:
                references = self.reader.references(self.reader.device, observation.state.device.references)
        elif Shows.TRANSFERS in self.shows:
            result = self.reader.blocks(observation.result, ("store_host", "store_device"))
        return predict.Hints(result, tables, references)

    def _decided(self, action: act.Allocate, predicted: Moment, admitted: bool | None) -> World:
        """Return the world after an allocation that the implementation admitted or not, whatever the model would have done."""
        record = predicted.record
        if record is None or admitted is None or admitted == record.admitted:
            return predicted.after
        if not admitted:
            return evolve(self.world, hit=None)
        self._lose(action)
        return carrying.carried_on(self.world, action)

    def _admitted(self, action: Action, predicted: Moment, observation: Observation) -> bool | None:
        """Tell whether an allocation was admitted, by its answer, status or tables; None if none of them says so."""
        if not isinstance(action, act.Allocate) or observation.refusal is not None:
            return None
        known = admitted_by(self.world, action, evolve(observation, result=self._result(action, observation)))
        if known is not None or Shows.ADMISSION in self.shows:
            return known
        said = (self._declared(observation.state).requests or {}).get(action.request)
        before = ground.request_of(self.world, action.request)
        if said is not None and said.tables is not None and before is not None:
            tables = tuple(state.table for state in before.groups)
            known = certainty.by_tables(tables, self.reader.tables(action.request, said.tables), predicted, action)
        return known

    def _guessed(self, action: Action, predicted: Moment, admitted: bool | None) -> str:
        """Return the capability without which what came of an action is a guess, empty if it is none."""
        if Shows.HITS not in self.shows and certainty.hangs_on_a_hit(self.world, action):
            return Shows.HITS.value
        if Shows.ADMISSION in self.shows:
            return ""
        if isinstance(action, act.Allocate):
            known = admitted is not None or certainty.must_be_admitted(self.world, action, predicted.record)
            return "" if known else Shows.ADMISSION.value
        return certainty.unsure(self.world, action, self.shows)

    def _guess(self, action: Action) -> Moment:
        """Return the moment of a run that is a guess: nothing of it can be judged."""
        hidden: list[Any] = [Hidden(self.guess) for _ in range(4)]
        return Moment(hidden[0], action, hidden[1], hidden[2], hidden[3])

    def _lose(self, action: Action) -> None:
        lost = LOST.get(type(action), frozenset())
        if self._partial and isinstance(action, act.Output):
            lost -= {COURSE}  # a recording has the counts of every request behind its output
        self.mask = evolve(self.mask, lost=self.mask.lost | lost)

    # --- what is shown ------------------------------------------------------------------------------------------------

    def _states(self, world: World, shown: State, noting: Noting) -> tuple[World, World]:
        """Return the world to go on with, and the one to judge: they differ where what is shown fits no complete world."""
        shown = self._declared(shown)
        lacking = Shows.TABLES not in self.shows
        transfers = world.host is not None and Shows.TRANSFERS not in self.shows
        if not lacking and not transfers:
            followed = self._repaired(self._overriding.state(world, shown, noting, self.world), noting)
            return followed, followed
        judged = self._overriding.state(world, shown, noting, self.world)
        kept = shown
        if lacking:
            kept = evolve(kept, device=PoolState(), rows=None)
        elif transfers:
            # Who holds the blocks of transfers is not known: the world goes on with references that fit the ones it follows.
            kept = evolve(kept, device=PoolState(keys=kept.device.keys))
        if transfers and kept.host is not None:
            kept = evolve(kept, host=evolve(kept.host, pool=PoolState()))
        quiet = Noting()
        world = evolve(world, prefixes=judged.prefixes) if judged.prefixes is not world.prefixes else world
        return self._repaired(self._overriding.state(world, kept, quiet, self.world), quiet), judged

    def _declared(self, shown: State) -> State:
        """Return a state without what no declared capability shows."""
        shows, device = self.shows, shown.device
        if Shows.REFERENCES not in shows or Shows.FREE_QUEUE not in shows or Shows.KEYS not in shows:
            device = PoolState(
                device.references if Shows.REFERENCES in shows else None,
                device.free if Shows.FREE_QUEUE in shows else None,
                device.keys if Shows.KEYS in shows else None,
            )
            shown = evolve(shown, device=device)
        if shown.requests is not None and (Shows.TABLES not in shows or Shows.INTERNALS not in shows):
            hidden: dict[str, Any] = {} if Shows.TABLES in shows else {"tables": None}
            hidden |= {} if Shows.INTERNALS in shows else {"num_cached": None}
            shown = evolve(shown, requests={name: evolve(said, **hidden) for name, said in shown.requests.items()})
        for name, capability in SHOWN_BY.items():
            if capability not in shows and getattr(shown, name) is not None:
                unshown: dict[str, Any] = {name: None}
                shown = evolve(shown, **unshown)
        if shown.host is not None:
            shown = evolve(shown, host=self._declared_host(shown.host))
        return shown

    def _declared_host(self, shown: HostState) -> HostState:
        hidden: dict[str, Any] = {}
        if Shows.HOST not in self.shows:
            hidden |= {"pool": PoolState(), "pins": None, "cursors": None, "cursor": None}
        if Shows.TRANSFERS not in self.shows:
            names = ("loads", "abandoned_loads", "stores", "abandoned_stores", "queued")
            hidden |= dict.fromkeys(names)
        if Shows.COUNTERS not in self.shows:
            hidden["counters"] = None
        return evolve(shown, **hidden) if hidden else shown

    def _repaired(self, world: World, noting: Noting) -> World:
        """Return a world that can go on: if something differs, references that are not shown are counted anew."""
        if not noting.found:
            return world
        transfers = world.host is not None and Shows.TRANSFERS not in self.shows
        counted = world.host is not None and (transfers or Shows.HOST not in self.shows)
        unheld = transfers or Shows.TABLES not in self.shows
        world = override.recounted(world, unheld or Shows.REFERENCES not in self.shows, counted)
        pool = world.pool
        if unheld or Shows.FREE_QUEUE not in self.shows:
            pool = override.requeued(pool)
        if pool is not world.pool:
            world = evolve(world, pool=pool)
        return world

    # --- the answer ---------------------------------------------------------------------------------------------------

    def _answer(
        self,
        action: Action,
        predicted: Moment,
        observation: Observation,
        admitted: bool | None,
        followed: World,
        judged: World,
        noting: Noting,
    ) -> tuple[World, World, Record, Record]:
        """Return the worlds and the record with what the implementation answered in place, and the record as laws see it."""
        same = followed is judged
        table, result = self.reader.result(
            self._result(action, observation), judged.prefixes, isinstance(action, act.LookupExternal)
        )
        if table is not judged.prefixes:
            judged = evolve(judged, prefixes=table)
            followed = judged if same else evolve(followed, prefixes=table)
        record = predicted.record or Record(type(action).__name__)
        if admitted is not None:
            result = {**result, "admitted": admitted}
        changed = {name: value for name, value in result.items() if noting.differs(name, getattr(record, name), value)}
        followed_from = leftout.following(self.world, action, result)
        # Between the states of a recording the prediction stands, as long as nothing differs from it.
        sure = self._partial and not noting.found and not self.mask.derived()
        left_out = [] if sure else leftout.unknown(self.config, self.shows, action, {*result, *followed_from})
        if "store_device" in changed and "store_meta" not in result:
            # what the events will say of a block that the model did not choose is not known
            meta = record.store_meta or (() if choosing.tracks_meta(self.config) and changed["store_device"] else None)
            changed["store_meta"] = override.rearranged(meta, record.store_device, changed["store_device"])
        if changed:
            record = evolve(record, **changed)
            now = answers.taken_in(judged, action, record, changed)
            followed = now if same else answers.taken_in(followed, action, record, changed)
            judged = now
        if followed_from and not sure:
            record = evolve(record, **followed_from)
        withheld = leftout.IN_WORLDS.get(type(action), frozenset()).intersection(() if self._partial else left_out)
        if not withheld <= self.mask.withheld:
            self.mask = evolve(self.mask, withheld=self.mask.withheld | withheld)
        return followed, judged, record, self.mask.record(action, record, left_out, told=isinstance(action, act.Allocate))

    def _result(self, action: Action, observation: Observation) -> dict[str, object]:
        """Return the fields of an answer that a declared capability shows, or that every adapter may show."""
        decided = FIELDS.get(type(action), {})
        unknown = observation.result.keys() - RECORD
        if unknown:
            words = near.unknown("field", str(sorted(unknown, key=str)[0]), sorted(RECORD))
            raise AdapterError(f"{type(action).__name__}: an answer has {words}")
        return {
            name: value
            for name, value in observation.result.items()
            if decided.get(name, Shows.EVENTS if name == "events" else None) in (None, *self.shows)
            and not (name == "reads" and self.mask.contents())
            and not (value is None and name not in MAY_BE_NONE)
        }

    # --- the moment ---------------------------------------------------------------------------------------------------

    def _masked(self, action: Action, record: Record | None, refusal: Refusal | None, after: World) -> Moment:
        before = self._judged
        if PLAN in self.mask.lost and isinstance(action, act.Drain) and refusal is None:
            self.mask = evolve(self.mask, lost=self.mask.lost - {PLAN})
        self._judged = self.mask.world(after)
        return Moment(before, action, record, refusal, self._judged)

    def _queued_as(self, shown: State) -> World:
        """Return the new world with its free queues in the order in which the implementation begins: any order will do."""
        world, reader = self.world, self.reader
        if Shows.FREE_QUEUE in self.shows and shown.device.free is not None:
            world = evolve(world, pool=override.reordered(world.pool, reader.free(reader.device, shown.device.free)))
        if world.host is not None and Shows.HOST in self.shows and shown.host is not None and shown.host.pool.free is not None:
            pool = override.reordered(world.host.pool, reader.free(reader.host, shown.host.pool.free))
            world = evolve(world, host=evolve(world.host, pool=pool))
        return world

    def _check(self, action: Action, observation: Observation) -> None:
        """Check that what is declared is shown. Raises AdapterError."""
        self._forms.check(action, observation)
        if not self._looked:
            self._looked = True
            absent = _absent(self.config, self.shows, observation.state.host)
            if Shows.HANDOFFS in self.shows and observation.state.handoffs is None:
                absent.append(WAITING)
            self.mask = Mask.of(self.config, self.shows, absent)
            self.world = self._queued_as(observation.state)
            self._judged = self.mask.world(self.world)
        for capability, is_there in DECLARED.items():
            if capability in self.shows and not is_there(observation.state, self.config):
                raise AdapterError(
                    f"{type(action).__name__}: the adapter declares {capability.value} and does not show it: show it after "
                    "every action, or do not declare it"
                )
        if observation.refusal is not None:
            return
        for name, capability in REQUIRED.get(type(action), {}).items():
            if capability in self.shows and observation.result.get(name) is None:
                raise AdapterError(
                    f"{type(action).__name__}: the adapter declares {capability.value} and answers without {name!r}"
                )
        if Shows.EVENTS in self.shows and self.config.events and "events" not in observation.result:
            raise AdapterError(
                f"{type(action).__name__}: the adapter declares events and answers without them: show an empty list"
            )

    def _check_requests(self, action: Action, after: World, shown: State) -> None:
        """Check that every live request is shown, if any part of one is declared. Raises AdapterError.

        Of one that is left out the prediction would stand, and laws would judge it as if it had been shown.
        """
        if shown.requests is None or self.shows.isdisjoint((Shows.TABLES, Shows.INTERNALS)):
            return
        groups = len(self.config.groups)
        ghosts = sorted(shown.requests.keys() - {request.request for request in after.requests})
        if ghosts:
            raise AdapterError(
                f"{type(action).__name__}: request {ghosts[0]} is shown and does not live: it was never submitted, or has "
                "finished; show those that live and no others"
            )
        for request in after.requests:
            said = shown.requests.get(request.request)
            if said is None:
                raise AdapterError(
                    f"{type(action).__name__}: request {request.request} is live and not shown: show all live requests, those "
                    "that wait or are preempted included (with empty tables)"
                )
            if said.tables and len(said.tables) != groups:
                raise AdapterError(
                    f"{type(action).__name__}: request {request.request} is shown with {len(said.tables)} tables: there are "
                    f"{groups} groups, and each has one"
                )


SHOWN_BY: dict[str, Shows] = {
    "rows": Shows.ROWS,
    "copies": Shows.COPIES,
    "handoffs": Shows.HANDOFFS,
    "deferred": Shows.TABLES,
}
"""The capability that shows a part of a state by itself."""

DECLARED: dict[Shows, Callable[[State, Config], bool]] = {
    Shows.TABLES: lambda state, config: (
        state.requests is not None and all(said.tables is not None for said in state.requests.values())
    ),
    Shows.INTERNALS: lambda state, config: (
        state.requests is not None and all(said.num_cached is not None for said in state.requests.values())
    ),
    Shows.REFERENCES: lambda state, config: state.device.references is not None,
    Shows.FREE_QUEUE: lambda state, config: state.device.free is not None,
    Shows.KEYS: lambda state, config: state.device.keys is not None,
    Shows.ROWS: lambda state, config: state.rows is not None,
    Shows.HOST: lambda state, config: config.offload is None or state.host is not None,
    Shows.TRANSFERS: lambda state, config: config.offload is None or state.host is not None,
}
"""Whether a state has what a capability promises."""


def _absent(config: Config, shows: frozenset[Shows], host: HostState | None) -> list[str]:
    """Return the parts of a host state that a declared capability could show and this adapter does not."""
    if config.offload is None or host is None:
        return []
    parts = (
        (Shows.HOST, "host references", host.pool.references),
        (Shows.HOST, "host free queue", host.pool.free),
        (Shows.HOST, "host keys", host.pool.keys),
        (Shows.HOST, "host pins", host.pins),
        (Shows.HOST, "host cursors", host.cursors if config.offload.mode == "eager" else ()),
        (Shows.HOST, "lazy cursor", host.cursor if config.offload.mode == "lazy" else ()),
        (Shows.TRANSFERS, "host loads", host.loads),
        (Shows.TRANSFERS, "host abandoned loads", host.abandoned_loads),
        (Shows.TRANSFERS, "host stores", host.stores),
        (Shows.TRANSFERS, "host abandoned stores", host.abandoned_stores),
        (Shows.TRANSFERS, "host queued stores", host.queued),
        (Shows.COUNTERS, "host counters", host.counters),
    )
    return [name for capability, name, part in parts if capability in shows and part is None]


def _refusal(action: Action, predicted: Moment, observation: Observation, shows: frozenset[Shows]) -> Refusal | None:
    """Return the refusal of the moment: the model's where both refuse; an unexpected one is a broken contract (LV-9)."""
    if observation.refusal is None:
        return None
    needed = undecided(predicted.before, action, shows)
    if needed is not None:
        return cast(Refusal, Hidden(needed.value))
    if predicted.refusal is not None:
        return predicted.refusal
    return ContractBroken(f"the implementation does not perform it: {observation.refusal}")


def undecided(world: World, action: Action, shows: frozenset[Shows]) -> Shows | None:
    """Return what is not shown and decides whether an action is legal; None if that is known."""
    hosted = world.config.offload is not None
    # A transfer that is only guessed may still mention the id of a new request.
    needed = Shows.TRANSFERS if isinstance(action, MOVING) or (hosted and isinstance(action, act.Submit)) else None
    if certainty.hangs_on_a_hit(world, action):
        needed = Shows.HITS
    return None if needed in shows else needed


def admitted_by(world: World, action: act.Allocate, observation: Observation) -> bool | None:
    """Tell whether an implementation admitted an allocation, None if it does not say.

    Its answer tells, or, for a request that did not run before, the status afterwards.
    """
    answer = observation.result.get("admitted")
    if answer is not None:
        return bool(answer)
    said, before = (observation.state.requests or {}).get(action.request), ground.request_of(world, action.request)
    if said is None or said.status is None or before is None or before.status is Status.RUNNING:
        return None
    return said.status == ("loading" if action.load else "running")
