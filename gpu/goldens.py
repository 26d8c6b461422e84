"""The golden traces of docs/semantics.md, section 9, as runs that both sides perform."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field

from kvproof.core import actions as act
from kvproof.core.actions import Action
from kvproof.core.config import Config, Group, Offload, configure
from kvproof.core.world import Request, World, new_world
from kvproof.spec import judge, macros

FULL, MAMBA = "full_attention", "mamba_align"


class Stopped(Exception):
    """The model does not go on as a golden trace does; ``script`` has what was performed, ``action`` is None or refused."""

    def __init__(self, script: Script, why: str, action: Action | None = None) -> None:
        super().__init__(why)
        self.script, self.action = script, action


@define(slots=True)
class Script:
    """Writes a run down while the model performs it: hits and due outputs are read off the model's world."""

    config: Config
    world: World = field(init=False)
    actions: list[Action] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.world = new_world(self.config)

    def do(self, *actions: Action) -> Script:
        """Perform actions. Raises Stopped if the model refuses one."""
        for action in actions:
            moment = judge.attempt(self.world, action)
            if moment.refusal is not None:
                raise Stopped(self, str(moment.refusal), action)
            self.world = moment.after
            self.actions.append(action)
        return self

    def submit(self, request: int, tokens: int, *others: int) -> Script:
        """Submit a prompt of the tokens 1, 2, 3, ... and some others behind them."""
        return self.do(act.Submit(request, (*range(1, tokens + 1), *others)))

    def live(self, request: int) -> Request:
        """Return a live request. Raises Stopped if there is none."""
        for live in self.world.requests:
            if live.request == request:
                return live
        raise Stopped(self, f"request {request} is not there any more")

    def chunk(self, request: int, amount: int, *drafts: int, sampled: tuple[int, ...] = (9,)) -> Script:
        """One step with one request; if it samples, it brings ``sampled``."""
        return self.do(act.BeginStep()).plan(request, amount, *drafts).close(sampled)

    def plan(self, request: int, amount: int, *drafts: int) -> Script:
        """Admit a request with what it hits, or continue it."""
        live, local = self.live(request), 0
        if not live.computed and not live.groups[0].table:
            self.do(act.Lookup(request))
            local = self.world.hit.local if self.world.hit is not None else 0
        return self.do(act.Allocate(request, amount + len(drafts), local, drafts=drafts))

    def close(self, sampled: tuple[int, ...] = (9,)) -> Script:
        """Dispatch and execute the open plan, and process its outputs."""
        self.do(*macros.CLOSE, *macros.execution(self.config))
        for entry in self.world.steps[0].scheduled if self.world.steps else ():
            self.do(act.Output(entry.request, sampled if entry.samples else ()))
        return self

    def stored(self) -> Script:
        """Run and complete every store that is under way, behind an empty step for those of finished requests."""
        self.do(act.BeginStep()).close()
        host = self.world.host
        for store in () if host is None else host.stores:
            self.do(act.RunStore(store.event), act.CompleteStore(store.event))
        return self

    def wipe(self) -> Script:
        """Remove every key of the device."""
        return self.do(act.ResetCache())


def hybrid(attention: int, mamba: int, *, spare: int = 0, **settings: object) -> Script:
    """Begin a run of one full-attention and one Mamba-align group, dense retention and 40 blocks unless said."""
    given: dict[str, object] = {"num_blocks": 40} | settings
    groups = (Group(FULL, attention), Group(MAMBA, mamba, speculative_blocks=spare))
    return Script(configure(groups, **given))  # type: ignore[arg-type]


def g1(prompt: int, *ends: int) -> Script:
    """G1: a first prompt on two ranks."""
    script, start = hybrid(16, 16, dcp_size=2).submit(0, prompt), 0
    for end in ends:
        script.chunk(0, end - start)
        start = end
    return script.do(act.Finish(0))


def g2() -> Script:
    """G2 and G3: stores of a prompt on four ranks, a wiped device, and the load of its resend."""
    script = hybrid(16, 16, dcp_size=4, offload=Offload(num_blocks=20)).submit(0, 50)
    script.chunk(0, 48).chunk(0, 2).do(act.Finish(0)).stored().wipe().submit(1, 50)
    script.do(act.BeginStep(), act.Lookup(1), act.LookupExternal(1, 0), act.Allocate(1, 0, external=48, load=True)).close()
    script.do(act.RunLoad(0), act.CompleteLoad(1), act.BeginStep(), act.Promote(1), act.Allocate(1, 2)).close()
    return script.do(act.Finish(1)).stored()


def g4() -> Script:
    """G4: a prompt tail that decoding filled is stored once."""
    script = hybrid(64, 64, hash_block_size=16, offload=Offload(num_blocks=20)).submit(0, 50).chunk(0, 48).chunk(0, 2)
    for _ in range(14):
        script.chunk(0, 1)
    return script.do(act.Finish(0)).stored()


def g6() -> Script:
    """G6: a hit inside an attention block on two ranks is copied."""
    script = hybrid(4, 4, dcp_size=2).submit(0, 14).chunk(0, 12).chunk(0, 2).do(act.Finish(0))
    return script.submit(1, 12, 51, 52, 53, 54).chunk(1, 4).chunk(1, 1)


def g7() -> Script:
    """G7: the joint hit is bounded by the snapshots that are left."""
    script = hybrid(4, 4, dcp_size=2, max_chunk=4).submit(0, 14)
    for amount in (4, 4, 4, 2):
        script.chunk(0, amount)
    return script.do(act.Finish(0), act.EvictBlocks((5,))).submit(1, 16).chunk(1, 4).chunk(1, 4)


def g8() -> Script:
    """G8: a block is promoted and keeps its partial key as a secondary one."""
    script = hybrid(16, 16, dcp_size=2).submit(0, 50).chunk(0, 48).chunk(0, 2)
    while script.live(0).computed < 66:
        script.chunk(0, 1)
    return script.do(act.EvictBlocks((2,)))


def g10() -> Script:
    """G9 and G10: the producer's copy, then the consumer's copies of both blocks."""
    script = hybrid(64, 64, hash_block_size=16).submit(0, 50).chunk(0, 48).chunk(0, 2).submit(1, 50)
    return script.chunk(1, 2).do(act.BeginStep()).plan(0, 1).plan(1, 1).close()


def g11() -> Script:
    """G11: a speculative block moves along with the running state."""
    script = hybrid(16, 16, spare=1, num_draft_tokens=1).submit(0, 150).chunk(0, 16).chunk(0, 64).chunk(0, 64)
    return script.chunk(0, 6).chunk(0, 1, 7, sampled=(7, 8)).chunk(0, 1, 7, sampled=(5,)).chunk(0, 1)


def g13() -> Script:
    """G13: the order of the free queue behind a finished request."""
    return hybrid(16, 16, num_blocks=12).submit(0, 40).chunk(0, 32).chunk(0, 8).do(act.Finish(0))


def g14() -> Script:
    """G14: a sibling of the same step waits one step."""
    script = hybrid(16, 16).submit(0, 40).submit(1, 40).do(act.BeginStep()).plan(0, 32)
    script.do(act.Lookup(1), act.Allocate(1, 8, 32)).close()
    return script.do(act.BeginStep()).plan(0, 8).plan(1, 8).close()


def g15() -> Script:
    """G15: accepted and rejected drafts, a preemption, and a late output."""
    script = hybrid(16, 16, spare=3, num_draft_tokens=3, max_steps_in_flight=2).submit(0, 20).chunk(0, 16).chunk(0, 4)
    script.chunk(0, 1, 1, 2, 3, sampled=(1, 6)).do(act.BeginStep()).plan(0, 1, 1, 2, 3)
    script.do(*macros.CLOSE, act.Preempt(0), *macros.EXECUTE, act.Output(0, (1, 2, 7)))
    return script.chunk(0, 10)


def g16() -> Script:
    """G16: EAGLE gives up a unit of a hit."""
    script = hybrid(64, 64, hash_block_size=16, use_eagle=True).submit(0, 100).chunk(0, 80).chunk(0, 20)
    return script.do(act.Finish(0)).submit(1, 100).chunk(1, 20)


def g17() -> Script:
    """G17: a withdrawn plan gives the keys back that it registered."""
    script = hybrid(64, 64, hash_block_size=16).submit(0, 50).chunk(0, 48).chunk(0, 2)
    while script.live(0).computed < 63:
        script.chunk(0, 1)
    return script.do(act.BeginStep()).plan(0, 1).do(act.Withdraw(0)).close()


SCRIPTS: dict[str, Callable[[], Script]] = {
    "G1": lambda: g1(50, 48, 50),
    "G1, 40 tokens": lambda: g1(40, 32, 40),
    "G2, G3": g2,
    "G4": g4,
    "G6": g6,
    "G7": g7,
    "G8": g8,
    "G9, G10": g10,
    "G11": g11,
    "G13": g13,
    "G14": g14,
    "G15": g15,
    "G16": g16,
    "G17": g17,
}
"""How each golden trace is written."""
