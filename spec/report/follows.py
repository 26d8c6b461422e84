"""What follows the last action of a counterexample whose law judges a run by what becomes of it, and what is left open then.

A law of the end of a run (LV-2 to LV-4) lets the engine do what it does by itself; one of a whole run (LV-5, LV-6) may do so,
reset the cache, and send a prompt again. The actions are noted while the law judges: nothing here knows how it goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from attrs import Factory, define, frozen

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.world import World
from kvproof.spec import counterexample as examples
from kvproof.spec import ground_host
from kvproof.spec import laws as all_laws
from kvproof.spec.counterexample import Counterexample
from kvproof.spec.engines import players
from kvproof.spec.exploring import canonical
from kvproof.spec.exploring import obligations as obliging
from kvproof.spec.exploring.obligations import Obligation
from kvproof.spec.judge import Judge
from kvproof.spec.laws.base import Moment
from kvproof.spec.report.blocks import Block, Tier, frame_of
from kvproof.spec.report.names import Names

BEYOND = (ArithmeticError, ValueError, LookupError, TypeError, MemoryError)
"""What a law may raise that does not reckon with the numbers of a file."""
MOST = 8
"""Of what is left open, so many things are told."""


@frozen(slots=True)
class Continuation:
    """What the judgement of a law did behind the last action of a run (``moments``), and what is ``left`` open at the end.

    ``left`` are sentences; none if nothing is, or if the law speaks of something else. Of empty steps that change nothing one
    is kept, ``repeated`` counts the others.
    """

    moments: tuple[Moment, ...] = ()
    left: tuple[str, ...] = ()
    repeated: int = 0

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions that follow."""
        return tuple(moment.action for moment in self.moments)


@define(slots=True)
class Noted:
    """A run under way that keeps what was done; ``runs`` are all runs that were begun, this one among them."""

    player: players.Player
    config: Config
    runs: list[Noted]
    moments: list[Moment] = Factory(list)

    @property
    def world(self) -> World:
        """The world that the run has come to."""
        return self.player.world

    @property
    def shown(self) -> World:
        """The world as far as it is shown."""
        return self.player.shown

    def act(self, action: Action) -> Moment:
        """Perform one action and keep it."""
        moment = self.player.act(action)
        self.moments.append(moment)
        return moment

    def again(self) -> Noted:
        """Return a run that has come to the same point."""
        return self._kept(Noted(self.player.again(), self.config, self.runs, list(self.moments)))

    def _kept(self, run: Noted) -> Noted:
        self.runs.append(run)
        return run


def of(example: Counterexample, config: Config) -> Continuation | None:
    """Return what follows, None for a law that does not judge runs as a whole, or one that knows no such numbers.

    The caller plants the fault, and has the evidence from the law itself. Of a lasso nothing follows: its cycle stands among
    its actions.
    """
    law = next((known for known in all_laws.ALL if known.id == example.law), None)
    if example.position >= 0 or not example.actions or law is None:
        return None
    if examples.lasso_of(example) is not None:
        return Continuation()
    if law.check_run is None and law.check_end is None:
        return None
    runs: list[Noted] = []
    begin = players.Shared()

    def start(asked: Config) -> players.Player:
        run = Noted(begin(asked), asked, runs)
        runs.append(run)
        return run

    with suppress(*BEYOND):
        Judge([law]).run(config, example.actions, start)
    moments, repeated = _folded(_chosen(example, config, runs))
    return Continuation(moments, repeated=repeated)


def _chosen(example: Counterexample, config: Config, runs: Sequence[Noted]) -> tuple[Moment, ...]:
    """Return what was done behind the actions: where a prompt was sent again, that of the evidence; else the longest way."""
    count = len(example.actions)
    further = [run.moments[count:] for run in runs if run.config == config and len(run.moments) > count]
    prompt = dict(example.values).get("prompt")
    again = [moments for moments in further if any(_sends(moment, prompt) for moment in moments)]
    longest: list[Moment] = []
    for moments in again or further:
        longest = moments if len(moments) > len(longest) else longest
    return tuple(longest)


def _folded(moments: Sequence[Moment]) -> tuple[tuple[Moment, ...], int]:
    """Leave out steps that lead from a world to the same one up to names and past times; return how many they are."""
    begins = [at for at, moment in enumerate(moments) if isinstance(moment.action, act.BeginStep)]
    ends = [*begins[1:], len(moments)][: len(begins)]
    try:
        keys = [canonical.key(moments[at].before) for at in begins]
    except OverflowError:  # a key is made for the numbers of a scope
        return tuple(moments), 0
    kept, repeated = list(moments[: begins[0]] if begins else moments), 0
    for number, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        # The first step that changes nothing is kept: it shows what is tried.
        if number and keys[number] == keys[number - 1] and number + 1 < len(keys) and keys[number + 1] == keys[number]:
            repeated += 1
        else:
            kept += moments[begin:end]
    return tuple(kept), repeated


def _sends(moment: Moment, prompt: Any) -> bool:
    return isinstance(moment.action, act.Submit) and moment.action.tokens == prompt


# --- what is left open ------------------------------------------------------------------------------------------------


def left_open(example: Counterexample, found: Continuation, world: World, names: Names) -> tuple[str, ...]:
    """Return what is open in the world that a run came to, a sentence each: blocks, requests, transfers, keys.

    Where an implementation or the tensors broke the law nothing is: the run is the model's, which is not judged.
    """
    if examples.broken_outside(example):
        return ()
    told = [*_refused(found), *_owed(example, names), *_known(example, world, names)]
    asked = dict(example.values).get("obligation")
    for obligation in obliging.ALL:
        if obligation.law != example.law or (asked is not None and obligation.name != asked):
            continue
        if asked is None and obligation.asked:
            continue
        told += _told(obligation, world, names)
    told = list(dict.fromkeys(told))
    return (*told[:MOST], f"and {len(told) - MOST} more") if len(told) > MOST else tuple(told)


def _refused(found: Continuation) -> Iterator[str]:
    last = found.moments[-1] if found.moments else None
    if last is not None and last.refusal is not None:
        yield f"the last of these actions is refused ({last.refusal.code}): {last.refusal}"


def _owed(example: Counterexample, names: Names) -> Iterator[str]:
    """Yield what a run owes by its evidence: a key that the host has not, or the hit of a prompt that was sent again."""
    values = dict(example.values)
    key, group, request = (values.get(name) for name in ("key", "group", "request"))
    if example.law == "LV-5" and isinstance(key, int):
        whose = f" of {names.request(request)}" if isinstance(request, int) else ""
        yield f"no host block has the key g{group} {names.at(key)}{whose}"
    if example.law == "LV-6" and "expected" in values:
        actual = values.get("actual")
        said = "is refused" if actual is None else f"hits {actual} tokens on the host"
        yield f"the prompt that is sent again {said}; {values['expected']} tokens are promised"


def _known(example: Counterexample, world: World, names: Names) -> Iterator[str]:
    """Yield the requests that are gone and not forgotten, whether or not the store side knows that they have finished."""
    if example.law == "LV-4" and world.host is not None:
        alive = {request.request for request in world.requests}
        gone = (track.request for track in world.host.tracks if track.request not in alive)
        yield from (SENTENCES["finished requests"].format(one, request=names.request(one)) for one in gone)


def _told(obligation: Obligation, world: World, names: Names) -> Iterator[str]:
    """Yield what is open of an obligation, a sentence each."""
    left = obligation.left(world)
    if obligation.name in ("device blocks", "host blocks"):
        tier: Tier = "device" if obligation.name == "device blocks" else "host"
        frame = frame_of(world, 0, names, [(tier, block) for block in left])
        yield from (_held(block) for block in (frame.device if tier == "device" else frame.host))
        return
    if obligation.name == "loads":
        loads = () if world.host is None else ground_host.all_loads(world.host)
        yield from (
            f"the load of {names.of(load)} into {_list(load.device)} has not ended ({load.stage.name.lower()})"
            for load in loads
        )
        return
    yield from (SENTENCES[obligation.name].format(one, request=names.request(one)) for one in left)


SENTENCES: dict[str, str] = {
    "pins": "the hit of {request} on the host stays pinned, and {request} is gone",
    "deferred frees": "a free waits for {0} processed steps",
    "stores": "store {0} has not ended",
    "queued stores": "a store of block {0} is queued and not issued",
    "loading requests": "{request} waits for its load",
    "finished requests": "the store side still knows {request}, which has finished",
}
"""What is said of one open thing, by the obligation; blocks and loads are told with what holds them."""


def _held(block: Block) -> str:
    """Return who holds a block, or that nobody does."""
    by = [f"{request} g{group}[{column}]" for request, group, column in block.owners] + list(block.pins)
    count = "1 reference" if block.refs == 1 else f"{block.refs} references"
    where = "host block" if block.tier == "host" else "block"
    return f"{where} {block.name} has {count}, " + (f"of {', '.join(by)}" if by else "and nothing is there that holds it")


def _list(blocks: Sequence[int]) -> str:
    return f"block {blocks[0]}" if len(blocks) == 1 else f"blocks {', '.join(map(str, blocks))}"
