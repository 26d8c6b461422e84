"""Lookups: hits per kind, the EAGLE drop, the joint hit against a search over all boundaries, divergent hits (T11, T12, T15)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from attrs import evolve

from kvproof.core import actions as act
from kvproof.core import kinds, lookup, step
from kvproof.core import pool as pools
from kvproof.core.config import SOUND, VLLM_0_33_0, Config, Group, configure
from kvproof.core.errors import ConfigError, ContractBroken
from kvproof.core.pool import Pool
from kvproof.core.world import GroupState, Request
from tests.driving import Driver

FA, MAMBA, SWA, CHUNK = "full_attention", "mamba_align", "sliding_window", "chunked_local"


class Keys:
    """A pool in which boundaries of one prompt are registered by hand; node b*1000 is the prefix of b tokens."""

    def __init__(self, config: Config, *boundaries: tuple[int, ...]) -> None:
        self.config = config
        self.pool: Pool = pools.new_pool(sum(len(keyed) for keyed in boundaries) + 1)
        self.blocks: dict[tuple[int, int], int] = {}
        for group, keyed in enumerate(boundaries):
            for boundary in keyed:
                self.blocks[boundary, group] = len(self.blocks) + 1
                self.pool = pools.insert(self.pool, boundary * 1000, group, self.blocks[boundary, group], boundary)

    def nodes(self, num_tokens: int) -> list[int]:
        """Return the prefix nodes of the hash boundaries of ``num_tokens`` tokens."""
        unit = self.config.hash_block_size
        return [boundary * 1000 for boundary in range(unit, num_tokens + 1, unit)]

    def hit(self, num_tokens: int) -> tuple[int, lookup.Lists, int]:
        """Return the joint hit of a request of ``num_tokens`` tokens, its lists and the junction."""
        return lookup.lookup_common(self.config, self.pool, self.nodes(num_tokens), num_tokens - 1)

    def boundaries(self, lists: lookup.Lists) -> list[list[int]]:
        """Return lists with every block replaced by the boundary it was registered for, 0 for null."""
        names = {block: boundary for (boundary, _), block in self.blocks.items()} | {0: 0}
        return [[names[block] for block in blocks] for blocks in lists]


def joint(config: Config, num_tokens: int, *boundaries: tuple[int, ...]) -> tuple[int, list[list[int]], int]:
    """Return the joint hit when these boundaries are keyed per group, its lists by boundary, and the junction."""
    keys = Keys(config, *boundaries)
    hit, lists, junction = keys.hit(num_tokens)
    return hit, keys.boundaries(lists), junction


# --- hits per kind ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "keyed", "hit", "entries"),
    [
        (9, (4, 8, 12, 16), 16, [0, 0, 12, 16]),  # two blocks before 16
        (10, (4, 8, 12, 16), 16, [0, 8, 12, 16]),  # one token more: three
        (9, (4, 12, 16), 16, [0, 0, 12, 16]),
        (9, (4, 8, 16), 8, [4, 8]),  # 12 is missing: the run before it
        (9, (4, 16), 4, [4]),  # contiguous from the start is enough
        (9, (8, 16), 0, []),
        (9, (), 0, []),
    ],
)
def test_sliding_window(window: int, keyed: tuple[int, ...], hit: int, entries: list[int]) -> None:
    """T11: `need` consecutive blocks from the right, or all of them back to the start; the entries before are null."""
    config = configure((Group(SWA, 4, window=window),))
    assert joint(config, 18, keyed) == (hit, [entries], 0)


@pytest.mark.parametrize(
    ("empty", "keyed", "hit"),
    [("nothing", (), (16, [0, 0, 0, 0])), ("one_block", (), (0, [])), ("one_block", (8,), (8, [0, 8]))],
)
def test_a_window_of_one_token_needs_no_block(empty: Any, keyed: tuple[int, ...], hit: tuple[int, list[int]]) -> None:
    """2.9, HB-15: W=1 reads nothing that is cached; 0.33.0 asks for one block all the same, which no mask ever keeps."""
    config = configure((Group(SWA, 4, window=1),), profile=evolve(SOUND, empty_window=empty))
    assert joint(config, 18, keyed) == (hit[0], [hit[1]], 0)


@pytest.mark.parametrize(("empty", "hit"), [("nothing", 4), ("one_block", 4)])
def test_a_window_of_one_token_drops(empty: Any, hit: int) -> None:
    """T35: with the drop the block behind the hit is the one that must match."""
    config = configure((Group(SWA, 4, window=1),), use_eagle=True, profile=evolve(SOUND, empty_window=empty))
    assert joint(config, 18, (8,)) == (hit, [[0]], 0)


def test_sliding_window_aligned_to_the_scheduler_block() -> None:
    """T11: the end of the run is a multiple of A, also after the EAGLE pop."""
    groups = (Group(FA, 8), Group(SWA, 4, window=5))
    everything = ((8, 16, 24), (4, 8, 12, 16, 20, 24))
    config = configure(groups)
    assert (config.alignment, config.sizes) == (8, (8, 4))
    assert joint(config, 24, *everything) == (16, [[8, 16], [0, 0, 0, 16]], 0)
    assert joint(config, 25, *everything) == (24, [[8, 16, 24], [0, 0, 0, 0, 0, 24]], 0)
    assert joint(configure(groups, use_eagle=True), 25, *everything) == (16, [[8, 16], [0, 0, 0, 16]], 0)
    # With EAGLE the blocks on both sides of the end are needed: 16 and 20.
    assert joint(configure(groups, use_eagle=True), 25, (8, 16, 24), (4, 8, 12, 16, 24))[0] == 8


@pytest.mark.parametrize(
    ("rule", "window", "keyed", "hit"),
    [
        ("drop", 32, (4, 8, 12, 16, 20), (16, [4, 8, 12, 16])),
        ("align", 32, (4, 8, 12, 16, 20), (8, [4, 8])),
        ("align", 32, (4, 8, 12), (0, [])),
        ("drop", 32, (4, 8, 12), (8, [4, 8])),
        ("align", 8, (12, 16, 20), (16, [0, 0, 12, 16])),  # the window is filled
        ("align", 16, (4, 8, 12, 16, 20), (16, [4, 8, 12, 16])),  # exactly
        ("align", 17, (4, 8, 12, 16, 20), (16, [4, 8, 12, 16])),
        ("align", 18, (4, 8, 12, 16, 20), (8, [4, 8])),  # one token more: a fifth block is missing
    ],
)
def test_a_run_that_fills_no_window_is_cut_once(
    rule: Any, window: int, keyed: tuple[int, ...], hit: tuple[int, list[int]]
) -> None:
    """HB-15, C-77: what is cut to A is the run behind the EAGLE drop; 0.33.0 cuts it in front of the drop, too."""
    groups = (Group(FA, 8), Group(SWA, 4, window=window))
    config = configure(groups, use_eagle=True, profile=evolve(SOUND, short_runs=rule))
    attention = [8, 16][: hit[0] // 8]
    assert joint(config, 29, (8, 16, 24), keyed)[:2] == (hit[0], [attention, hit[1]])


@pytest.mark.parametrize(
    ("num_tokens", "keyed", "hit", "entries"),
    [
        (16, (4, 8, 12), 12, [0, 0, 12]),  # limit 15: the chunk of 8..15, its first block hit
        (16, (), 8, [0, 0]),  # what lies before the chunk counts as hit
        (17, (), 16, [0, 0, 0, 0]),  # limit 16: nothing of the next chunk is needed
        (8, (4,), 4, [4]),
        (8, (), 0, []),
    ],
)
def test_chunked_local(num_tokens: int, keyed: tuple[int, ...], hit: int, entries: list[int]) -> None:
    """T11: entries before the chunk are null and count as hit, then contiguous keys (chunk 8, blocks of 4)."""
    config = configure((Group(CHUNK, 4, window=8),))
    assert joint(config, num_tokens, keyed) == (hit, [entries], 0)


def test_chunks_that_end_inside_a_block() -> None:
    """A hit needs every block from the one in which its own chunk begins: at 8 the chunk of 6 tokens begins in block 1."""
    config = configure((Group(CHUNK, 4, window=6),))
    assert joint(config, 10, (8,)) == (8, [[0, 8]], 0)
    # The limit 9 lies in the same chunk as 8; without block 1 neither 8 nor 4 (whose chunk begins at 0) can be resumed.
    assert joint(config, 10, ()) == (0, [[]], 0)
    assert joint(config, 10, (4,)) == (4, [[4]], 0)


def test_positionally_stable_states_are_hit_at_whole_blocks() -> None:
    """Stable states: the deepest state at a multiple of A; nulls, then its block."""
    config = configure((Group(FA, 8), Group("mamba_stable", 4)), num_blocks=40)
    assert (config.alignment, config.fine_grained) == (8, False)
    assert joint(config, 20, (8, 16), (4, 8, 12, 16)) == (16, [[8, 16], [0, 0, 0, 16]], 0)
    assert joint(config, 20, (8, 16), (4, 8, 12)) == (8, [[8], [0, 8]], 16)
    assert joint(config, 20, (8, 16), (4, 12)) == (0, [[], []], 16)


def test_scratch_groups_are_not_asked() -> None:
    """Scratch groups are in no class; their lists are empty, and alone they hit nothing."""
    config = configure((Group(FA, 4), Group("scratch", 2)))
    assert joint(config, 10, (4, 8), ()) == (8, [[4, 8], []], 0)
    alone = configure((Group("scratch", 2),))
    request = Request(0, 0, 0, 9, 9, False, (GroupState(),))
    assert lookup.lookup(alone, pools.new_pool(2), request, [1, 2, 3, 4]).local == 0


# --- EAGLE --------------------------------------------------------------------------------------------------------

T35 = (
    (Group(FA, 16), Group(MAMBA, 64), 1, (16, 32, 48, 64, 80, 96)),
    (Group(FA, 16), Group(MAMBA, 16), 2, (32, 64, 96)),
    (Group(FA, 64), Group(MAMBA, 64), 1, (64, 96)),
)


@pytest.mark.parametrize(("attention", "mamba", "ranks", "keyed"), T35)
@pytest.mark.parametrize(("states", "hit"), [((80,), 80), ((64, 96), 64), ((96,), 0)])
def test_t35_states_decide(
    attention: Group, mamba: Group, ranks: int, keyed: tuple[int, ...], states: tuple[int, ...], hit: int
) -> None:
    """T35, P=100: with chunk ends 80, 100 the hit is 80; with 64, 96, 100 it is 64, with 96, 100 there is no state at 80."""
    config = configure((attention, mamba), dcp_size=ranks, hash_block_size=16, use_eagle=True)
    assert config.fine_grained
    assert joint(config, 100, keyed, states)[0] == hit


def eagle_driver(*groups: Group, **settings: Any) -> Driver:
    """A driver with EAGLE, H=16 and a pool of 60 blocks."""
    return Driver(configure(groups, use_eagle=True, num_blocks=60, hash_block_size=16, **settings))


def resend(driver: Driver, tokens: int) -> int:
    """The local hit of a new request with the same first tokens."""
    driver.submit(99, tokens)
    driver.do(act.BeginStep())
    return driver.do(act.Lookup(99)).local


@pytest.mark.parametrize("retention", [None, 0])
@pytest.mark.parametrize(("attention", "mamba", "ranks", "keyed"), T35)
def test_t35_resend(attention: Group, mamba: Group, ranks: int, keyed: tuple[int, ...], retention: int | None) -> None:
    """T35: the chunk ends that T22 yields are 80, 100 and the resend hits 80, dense or sparse."""
    driver = eagle_driver(attention, mamba, dcp_size=ranks, retention=retention)
    driver.submit(0, 100)
    for amount in (80, 20):
        driver.chunk(0, amount)
    assert tuple(driver.keys(0)) == keyed
    assert resend(driver, 100) == 80


@pytest.mark.parametrize(
    ("chunks", "attention", "mamba", "hit"),
    [((80, 20), {64: [1], 96: [2]}, {80: [4]}, 80), ((64, 32, 4), {64: [1], 96: [3]}, {64: [2]}, 64)],
)
def test_g16_eagle(
    chunks: tuple[int, ...],
    attention: dict[int, list[int]],
    mamba: dict[int, list[int]],
    hit: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """G16: FA64, Mamba64, P=100: keys and resend for the chunk ends with the drop, and for those of the rule without it."""
    monkeypatch.setattr(step, "chunk_allowed", lambda *_: True)
    driver = eagle_driver(Group(FA, 64), Group(MAMBA, 64))
    driver.submit(0, 100)
    for amount in chunks:
        driver.chunk(0, amount)
    assert (driver.keys(0), driver.keys(1)) == (attention, mamba)
    assert resend(driver, 100) == hit


@pytest.mark.parametrize("unit", ["A", "S"])
@pytest.mark.parametrize(
    ("prompt", "chunks", "with_window", "without"),
    [(95, (64, 31), {"A": 64, "S": 0}, 64), (160, (64, 80, 16), {"A": 144, "S": 64}, 144)],
)
def test_replay_boundaries_of_a_window(
    unit: Any, prompt: int, chunks: tuple[int, ...], with_window: dict[str, int], without: int
) -> None:
    """2.8 (vllm#57444): FA64, Mamba64, SWA16 (W=17), retention 0: the unit of the replay boundaries decides what is kept."""
    attention_and_state = (Group(FA, 64), Group(MAMBA, 64))
    for groups, hit in (
        ((*attention_and_state, Group(SWA, 16, window=17)), with_window[unit]),
        (attention_and_state, without),
    ):
        driver = eagle_driver(*groups, retention=0, profile=evolve(SOUND, eagle_replay_unit=unit))
        driver.submit(0, prompt)
        for amount in chunks:
            driver.chunk(0, amount)
        assert resend(driver, prompt) == hit


def test_the_prompt_tail_reaches_the_end_of_the_prompt() -> None:
    """T9.2: 96 tokens: an EAGLE lookup reads the key at 96 and drops to 80; without EAGLE the tail is the one at 80."""
    for eagle, tail, state in ((True, 96, 80), (False, 80, 80)):
        config = configure((Group(FA, 64), Group(MAMBA, 64)), use_eagle=eagle, hash_block_size=16, num_blocks=40)
        driver = Driver(config)
        driver.submit(0, 96)
        for amount in (64, 16, 16) if not eagle else (80, 16):
            driver.chunk(0, amount)
        assert sorted(driver.keys(0)) == [64, tail]
        assert state in driver.keys(1)
        assert resend(driver, 96) == 80


def test_the_cacheable_prefix_goes_a_block_further_with_eagle() -> None:
    """2.8: FA8 and SWA4, hits at multiples of 8: of 22 tokens 16 are registered, with EAGLE up to a block of the group more.

    The window has the block behind 16 then, attention the prompt's tail at 20 (T9.2); its block ends behind the 22 tokens.
    """
    for eagle, attention, window in ((False, [8, 16], [4, 8, 12, 16]), (True, [8, 16, 20], [4, 8, 12, 16, 20])):
        driver = Driver(configure((Group(FA, 8), Group(SWA, 4, window=9)), use_eagle=eagle, num_blocks=40))
        driver.submit(0, 23)
        driver.chunk(0, 22)
        assert (sorted(driver.keys(0)), sorted(driver.keys(1))) == (attention, window)


def test_a_model_with_one_group_has_no_margin() -> None:
    """T11: one group is asked up to the limit and then drops a block; two groups of one class look a block further."""
    keyed = (16, 32, 48)
    assert joint(configure((Group(FA, 16),), use_eagle=True), 48, keyed)[0] == 16
    assert joint(configure((Group(FA, 16),), use_eagle=True), 49, keyed)[0] == 32
    assert joint(configure((Group(FA, 16), Group(FA, 16)), use_eagle=True), 48, keyed, keyed)[0] == 32


@pytest.mark.parametrize("group", [Group(SWA, 4, window=9), Group(CHUNK, 4, window=12)])
def test_a_dropped_block_is_in_no_list(group: Group) -> None:
    """T35: the block that matched behind the hit is given up; the lists end at the hit."""
    config = configure((group,), use_eagle=True)
    keys = Keys(config, (4, 8, 12, 16, 20))
    asked = (config, keys.pool, keys.nodes(20), (0,), 20)
    hit, lists = kinds.of(group.kind).find_hit(*asked, True)
    assert (hit, keys.boundaries(lists)) == (16, [[0, 0, 12, 16]] if group.kind == SWA else [[0, 0, 0, 16]])
    assert kinds.of(group.kind).find_hit(*asked, False)[0] == 20


def test_the_margin_ends_with_the_hashed_tokens() -> None:
    """T11: 47 tokens have two hashes of 16; the margin of a class that drops does not reach behind them."""
    config = configure((Group(FA, 16), Group(SWA, 16, window=17)), use_eagle=True)
    assert joint(config, 47, (16, 32, 48), (16, 32, 48))[0] == 16
    assert joint(config, 48, (16, 32, 48), (16, 32, 48))[0] == 32


def test_only_classes_with_a_draft_group_drop() -> None:
    """3.1: a flagged group takes its class with it; the others, recurrent ones above all, are hit whole."""
    target, draft = Group(FA, 16), Group(FA, 16, draft=True)
    window = Group(SWA, 16, window=17)
    config = configure((target, draft, window), use_eagle=True)
    assert config.eagle == (True, True, False)
    everything = (16, 32, 48)
    # The class of the target is asked through 48 and gives 32; the window needs nothing behind 32.
    assert joint(config, 49, everything, everything, (16, 32))[0] == 32
    assert joint(config, 49, everything, everything, everything)[0] == 32
    assert joint(configure((target, draft, window)), 49, everything, everything, everything)[0] == 48
    assert configure((target, window), use_eagle=True).eagle == (True, True)


def test_a_drop_is_made_once_per_candidate() -> None:
    """T35 (vllm#32802): three classes that drop agree on 64 of 80 keyed tokens; a drop in every pass would end at 0."""
    groups = (Group(FA, 16), Group(SWA, 16, window=17), Group(SWA, 16, window=33))
    keyed = tuple(range(16, 81, 16))
    for profile in (SOUND, VLLM_0_33_0):
        config = configure(groups, use_eagle=True, profile=profile)
        assert joint(config, 81, keyed, keyed, keyed)[0] == 64


def test_the_junction_is_the_longest_hit_that_a_class_returned() -> None:
    """T11: not the limit, and after the drop; 0 if the joint hit is as long."""
    groups = (Group(FA, 16), Group(MAMBA, 16))
    config = configure(groups)
    assert joint(config, 100, (16, 32, 48, 64), (16,)) == (16, [[16], [16]], 64)
    assert joint(configure(groups, use_eagle=True), 100, (16, 32, 48, 64), (16,))[2] == 48
    assert joint(config, 100, (16, 32), (16, 32))[2] == 0
    assert joint(config, 100, (), (16,))[2] == 0


@pytest.mark.parametrize(("void", "hit"), [("any_lowering", 0), ("without_drop", 4)])
def test_a_lower_candidate_voids_verified_drops(void: Any, hit: int) -> None:
    """HB-15: the first window matched behind 16; the second lowers the candidate to 4, behind which the first has no key.

    Under ``without_drop`` a class that drops itself leaves the verification of the others alone, and the hit is 4.
    """
    groups = (Group(SWA, 4, window=4), Group(SWA, 4, window=5))
    config = configure(groups, use_eagle=True, profile=evolve(SOUND, void_drops=void))
    assert joint(config, 24, (4, 16, 20), (4, 8))[0] == hit


@pytest.mark.parametrize("void", ["any_lowering", "without_drop"])
def test_a_class_without_a_drop_voids_verified_drops(void: Any) -> None:
    """T11: the window matched behind 16; the recurrent class, which owes no drop, lowers the candidate to 4."""
    groups = (Group(SWA, 4, window=4, draft=True), Group(MAMBA, 4))
    config = configure(groups, use_eagle=True, profile=evolve(SOUND, void_drops=void))
    assert config.eagle == (True, False)
    assert joint(config, 24, (4, 16, 20), (4, 8))[0] == 0
    assert joint(config, 24, (4, 8, 16, 20), (4, 8))[0] == 4


# --- the joint hit against a search over all boundaries -----------------------------------------------------------


def skipped(group: Group, n: int) -> int:
    """How many leading tokens position n does not read, by looking at every one of them."""
    if group.kind == SWA:
        return sum(1 for p in range(n) if p <= n - (group.window or 0))
    if group.kind == CHUNK:
        return sum(1 for p in range(n) if p // (group.window or 0) != n // (group.window or 0))
    return 0


def resumes(config: Config, known: set[tuple[int, int]], members: tuple[int, ...], n: int, num_tokens: int) -> bool:
    """Tell whether a class can resume at n tokens, and has matched behind it if it owes an EAGLE drop (HB-15)."""
    group, size, unit = config.groups[members[0]], config.sizes[members[0]], config.hash_block_size

    def keyed(boundary: int) -> bool:
        return all((boundary, member) in known for member in members)

    if group.kind in (MAMBA, "mamba_stable"):
        return keyed(n)
    eagle = config.eagle[members[0]]
    most = num_tokens // unit * unit if eagle and len(config.groups) > 1 else num_tokens - 1
    end = n + (unit if config.fine_grained else size) if eagle else n
    if group.kind != FA:
        needed = [j for j in range(end // size) if (j + 1) * size > skipped(group, n)]
        return end <= most and all(keyed((j + 1) * size) for j in needed)
    return any(
        all(keyed((j + 1) * size) for j in range(top // size)) and (top % size == 0 or (config.fine_grained and keyed(top)))
        for top in range(end, most + 1)
        if top % unit == 0
    )


def random_case(rng: random.Random) -> tuple[Config, list[set[int]], int] | None:
    """A configuration of up to four small groups, the boundaries keyed in each, and a request's length; None if illegal."""
    groups = []
    for _ in range(rng.randint(1, 4)):
        kind = rng.choice([FA, FA, MAMBA, SWA, SWA, CHUNK, "mamba_stable", "scratch"])
        window = rng.choice([2, 3, 5, 6, 9]) if kind in (SWA, CHUNK) else None
        draft = kind in (FA, SWA) and rng.random() < 0.3
        groups.append(Group(kind, rng.choice([1, 2, 4]), window=window, draft=draft))
    try:
        config = configure(
            tuple(groups),
            use_eagle=rng.random() < 0.6,
            hash_block_size=rng.choice([None, 1, 2]),
            dcp_size=rng.choice([1, 1, 2]),
        )
    except ConfigError:
        return None
    if not config.classes:
        return None
    num_tokens, density = rng.randint(2, 24), rng.choice([0.5, 0.8, 0.9, 0.97])
    keyed: list[set[int]] = []
    for group, size in zip(config.groups, config.sizes, strict=True):
        unit = config.hash_block_size if group.kind in (FA, MAMBA) else size
        chance = {True: density, False: density if group.kind == MAMBA else 0.25}
        boundaries = range(unit, num_tokens + 1, unit) if group.kind != "scratch" else ()
        keyed.append({b for b in boundaries if rng.random() < chance[b % size == 0]})
    return config, keyed, num_tokens


def test_the_joint_hit_is_the_greatest_boundary_at_which_all_can_resume() -> None:
    """HB-15 on random pools and group sets; the lists are nulls, then the blocks that a resume reads."""
    rng = random.Random(35)
    outcomes = {True: 0, False: 0}
    eagle = 0
    while min(outcomes.values()) < 400:
        case = random_case(rng)
        if case is None:
            continue
        config, keyed, num_tokens = case
        known = {(boundary, group) for group, boundaries in enumerate(keyed) for boundary in boundaries}
        best = max(
            n
            for n in range(0, num_tokens, config.alignment)
            if n == 0 or all(resumes(config, known, members, n, num_tokens) for members in config.classes)
        )
        hit, lists, _ = joint(config, num_tokens, *(tuple(sorted(boundaries)) for boundaries in keyed))
        assert hit == best, (config.groups, config.eagle, keyed, num_tokens)
        for group, (spec, entries) in enumerate(zip(config.groups, lists, strict=True)):
            size = config.sizes[group]
            first = hit - 1 if spec.kind in (MAMBA, "mamba_stable") else skipped(spec, hit)
            wanted = [j * size < hit and (j + 1) * size > first for j in range(len(entries))]
            assert [bool(entry) for entry in entries] == wanted
            assert spec.kind == "scratch" or len(entries) == -(-hit // size)
        outcomes[hit > 0] += 1
        eagle += any(config.eagle)
    assert eagle > 200


# --- divergent hits and truncation (T12, T15) ---------------------------------------------------------------------


def per_group(config: Config, num_tokens: int, *boundaries: tuple[int, ...]) -> tuple[int, list[list[int]], int, bool]:
    """The hit of T12 when these boundaries are keyed per group."""
    keys = Keys(config, *boundaries)
    hit, lists, junction, diverged = lookup.lookup_per_group(config, keys.pool, keys.nodes(num_tokens), num_tokens - 1)
    return hit, keys.boundaries(lists), junction, diverged


def test_divergent_lookup_with_eagle() -> None:
    """T12: each class is asked with its margin and drops; the recurrent one does neither."""
    config = configure((Group(FA, 16), Group(MAMBA, 16)), use_eagle=True, connectors=(True,))
    assert per_group(config, 64, (16, 32, 48, 64), (16,)) == (48, [[16, 32, 48], [16]], 0, True)
    assert per_group(config, 64, (16, 32, 48, 64), (16, 32, 48)) == (48, [[16, 32, 48], [0, 0, 48]], 0, False)
    # A state behind the attention's hit means that attention blocks were lost.
    assert per_group(config, 65, (16, 32, 48), (32, 64)) == (32, [[16, 32], [0, 32]], 0, False)


@pytest.mark.parametrize(("lagging", "hit", "diverged"), [("recurrent", 16, False), ("any", 48, True)])
def test_a_window_may_not_lag(lagging: Any, hit: int, diverged: bool) -> None:
    """T12: a connector brings the state at the end of the external tokens, but not what a window reads before them."""
    groups = (Group(FA, 16), Group(MAMBA, 16), Group(SWA, 16, window=65))
    config = configure(groups, connectors=(True,), profile=evolve(SOUND, lagging_groups=lagging))
    local, _, _, apart = per_group(config, 80, (16, 32, 48), (16, 32, 48), (16,))
    assert (local, apart) == (hit, diverged)
    # States may lag under both values.
    local, _, _, apart = per_group(config, 80, (16, 32, 48), (16,), (16, 32, 48))
    assert (local, apart) == (48, True)


@pytest.mark.parametrize(("lagging", "hit", "diverged"), [("recurrent", 16, False), ("any", 24, True)])
def test_another_full_attention_class_may_not_lag(lagging: Any, hit: int, diverged: bool) -> None:
    """T12, C-81: nobody brings what a second class with larger blocks does not have; 0.33.0 compares with the first class alone."""
    groups = (Group(FA, 8), Group(FA, 16), Group(MAMBA, 16))
    config = configure(groups, hash_block_size=8, connectors=(True,), profile=evolve(SOUND, lagging_groups=lagging))
    assert config.sizes == (8, 16, 16)
    local, _, _, apart = per_group(config, 40, (8, 16, 24), (16,), (16,))
    assert (local, apart) == (hit, diverged)


def test_truncation() -> None:
    """T15: recurrent lists may be shorter, scratch lists are empty, any other list must reach the end."""
    groups = (Group(FA, 4), Group(MAMBA, 4), Group(SWA, 4, window=5), Group("mamba_stable", 4), Group("scratch", 2))
    config = configure(groups)
    lists = ((1, 2, 3), (0, 4), (0, 5, 6), (0, 0, 7), ())
    assert lookup.truncate(config, lists, 8) == ((1, 2), (0, 4), (0, 5), (0, 0), ())
    assert lookup.truncate(config, lists, 12) == ((1, 2, 3), (0, 4), (0, 5, 6), (0, 0, 7), ())
    with pytest.raises(ContractBroken, match="3 blocks in group 0 cannot be cut to 16 tokens, which are 4"):
        lookup.truncate(config, lists, 16)
    with pytest.raises(ContractBroken, match="2 blocks in group 2 cannot be cut to 12"):
        lookup.truncate(config, (*lists[:2], (0, 5), *lists[3:]), 12)
    with pytest.raises(ContractBroken, match="1 blocks in group 4"):
        lookup.truncate(config, (*lists[:4], (8,)), 8)
