"""The end of a walk: everything that runs ends, keys are taken back, and prompts that were sent before are looked up again.

Random walks seldom come to rest, and a reset of the prefix cache (T5) is done at rest only. What it leaves behind is seen in
the key map, if that is shown, and in what a prompt finds that was computed before.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.world import World
from kvproof.spec import ground
from kvproof.spec.engines import drain, players, prompts

FOLLOWING: frozenset[str] = frozenset(("HB-16", "HB-17"))
"""Laws that only follow a run, and are judged on its end as well. Others make an end of their own."""
RESENT = 3
"""So many prompts are sent again, those that were sent last."""


class Ended(Exception):
    """The walk cannot or need not go on: raised by a player, and no more than that."""


def close(player: players.Player, actions: Sequence[Action]) -> None:
    """Bring a run to rest, evict a block by its id, reset the prefix cache, and look prompts of ``actions`` up again.

    Raises Ended if the player does.
    """
    if drain.carried(player).refusal is not None or not ground.at_rest(player.world):
        return
    keyed = [block for _, _, _, block in player.world.pool.entries]
    if keyed:
        player.act(act.EvictBlocks((max(keyed, key=keyed.count),)))
    player.act(act.ResetCache())
    again = [_sent_again(player, sent) for sent in _sent_last(player.world, actions)]
    if again:
        player.act(act.BeginStep())
    for number in again:
        player.act(act.Lookup(number))


def _sent_last(world: World, actions: Sequence[Action]) -> list[act.Submit]:
    """Return the last different prompts that fill a hash block and read the cache."""
    unit = world.config.hash_block_size
    sent = [action for action in reversed(actions) if isinstance(action, act.Submit) and not action.skip_reading]
    long = {(action.context, action.tokens): action for action in sent if len(action.tokens) > unit}
    return list(long.values())[:RESENT]


def _sent_again(player: players.Player, sent: act.Submit) -> int:
    number = prompts.free_id(player.world)
    player.act(act.Submit(number, sent.tokens, sent.context))
    return number
