"""The product of exploration: every group set of section 10, on 1, 2 and 4 ranks, with every host mode, with and without EAGLE.

Each member is as small as it can be and still have hits. An attention block is two tokens long, on several ranks four;
prompts are two such blocks and one token long; the pool holds one request and two blocks more; one token is sampled. Two
requests of one text go on together, and one of them may be preempted; with a host tier one comes after the other, loads may
fail, and the cache may be reset. What one combination of features does to another is what the product is for: the catalogue
goes into each of them more deeply. A name says all of it: ``product-fa-m-w1-n2-eager-eagle``.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

from attrs import evolve, frozen

from kvproof.core import actions as act
from kvproof.core.config import Group, Offload
from kvproof.spec.engines.scope_parts import STABLE, full, mamba, window
from kvproof.spec.exploring.bounds import Bounds
from kvproof.spec.exploring.scope import Scope

PREFIX = "product-"
UNIT = 1
"""H of every set with more than one group, tokens; with one group H is its block."""
SETS: Mapping[str, tuple[Group, ...]] = {
    "fa": (),
    "fa-m": (mamba(2),),
    "fa-m-w1": (mamba(2), window(UNIT, 2)),
    "fa-m-w2": (mamba(2), window(2 * UNIT, 3)),
    "fa-w1": (window(UNIT, 2),),
    "fa-st": (Group(STABLE, 2),),
    "fa-d-m": (full(1, False, draft=True), mamba(2)),
}
"""What each group set has beside the sharded attention group. w1: a window group of E = H, w2: of E > H, st: recurrent states
that are positionally stable, d: the attention of a draft model. Windows and drafts are replicated."""
ATTENTION = {1: 2, 2: 2, 4: 1}
"""Block size of the attention group by DCP ranks, tokens of a rank: blocks of two ranks and of four hold the same tokens."""
DEPTH = 46
"""Actions of a run where EAGLE meets states that may be hit at every token, and two requests go on at once: whole, those graphs
are ten times as large as the others."""
LARGE = ("fa-m", "fa-m-w1", "fa-d-m")
HOSTS = ("none", "eager", "lazy")


@frozen(slots=True)
class Combination:
    """One point of the product: a name of ``SETS``, DCP ranks, the mode of the host tier, and whether EAGLE is on."""

    groups: str
    ranks: int
    host: str
    eagle: bool

    @property
    def name(self) -> str:
        """The name of its scope."""
        return f"{PREFIX}{self.groups}-n{self.ranks}-{self.host}{'-eagle' if self.eagle else ''}"

    @property
    def attention_size(self) -> int:
        """E of the attention group, tokens."""
        return ATTENTION[self.ranks] * self.ranks

    def scope(self) -> Scope:
        """Return its scope."""
        groups = (full(ATTENTION[self.ranks]), *SETS[self.groups])
        return Scope(self.name, groups, self._bounds(), self._settings(len(groups)))

    def _bounds(self) -> Bounds:
        bounds = Bounds(("a" * self._prompt,), submits=2, outputs=1, alphabet=(0,))
        if self.host == "none":
            depth = DEPTH if self.eagle and self.groups in LARGE else None
            return evolve(bounds, at_most={act.Preempt: 1}, depth=depth)
        return evolve(bounds, live=1, failures=True, starts="behind", stores="prompt", at_most={act.ResetCache: 1})

    @property
    def _prompt(self) -> int:
        """Tokens of a prompt: two attention blocks, since EAGLE gives the last one up, and a token to compute."""
        return 2 * self.attention_size + 1

    @property
    def _clip(self) -> int | None:
        """Where chunks stop (T22), None: at every block of states, which are half an attention block on several ranks.

        Then EAGLE leaves hits inside a block, which a host tier cannot load; and where hits end on whole attention blocks only
        it leaves none. So there, and with a lazy host, chunks stop at attention blocks.
        """
        return self.attention_size if self.host == "lazy" or self.groups == "fa-m-w2" else None

    def _settings(self, groups: int) -> dict[str, Any]:
        sizes = (self.attention_size, *(group.block_size for group in SETS[self.groups]))
        settings: dict[str, Any] = {
            "dcp_size": self.ranks,
            "hash_block_size": UNIT if groups > 1 else None,
            "clip_block_size": self._clip,
            "use_eagle": self.eagle,
            "max_model_len": self._prompt + 2,
            "num_blocks": 1 + sum(-(-(self._prompt + 1) // size) for size in sizes) + 2,
            "max_running": 2,
            "events": True,
        }
        if self.host != "none":
            settings["offload"] = Offload("lazy" if self.host == "lazy" else "eager", num_blocks=4 * groups)
        return settings


COMBINATIONS = tuple(Combination(*point) for point in product(SETS, ATTENTION, HOSTS, (False, True)))
SCOPES: tuple[Scope, ...] = tuple(one.scope() for one in COMBINATIONS)
"""A scope for each combination; ``configure`` refuses none of them."""
