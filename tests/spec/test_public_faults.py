"""Public reports: the page that lists them is complete, and each report's numbers come out right, and wrong with its fault."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import pytest
from attrs import fields_dict, frozen

from kvproof.core import actions as act
from kvproof.core import geometry, native
from kvproof.core.config import DEFAULTS, SOUND, Config, Group, Profile, configure
from kvproof.spec import faults, judge, macros
from kvproof.spec.engines import amounts
from kvproof.spec.engines.scopes import ALL as SCOPES
from tests.driving import Driver
from tests.spec.test_public_host_faults import REPORTS as HOST_REPORTS
from tests.tidy.sources import ROOT

FULL, WINDOW, MAMBA, SCRATCH = "full_attention", "sliding_window", "mamba_align", "scratch"


@frozen
class Report:
    """What a report's scenario comes to in the sound model and with the fault planted."""

    fault: str
    observe: Callable[[], object]
    right: object
    wrong: object


def shared(tokens: int, then: int, number: int) -> tuple[int, ...]:
    """A prompt that agrees with its siblings in its first tokens and then goes on by itself."""
    return (*range(1, tokens + 1), *range(10_000 * number, 10_000 * number + then))


def clipped(driver: Driver, request: int, wanted: int) -> int:
    """How many of the wanted tokens a chunk of a request may compute."""
    found = driver.request(request)
    return amounts.chunk(driver.world.config, found, found.computed, wanted)


def computed(driver: Driver, request: int, tokens: int | tuple[int, ...]) -> None:
    """Compute a whole prompt, each chunk as long as it may be, and finish the request."""
    driver.submit(request, tokens)
    while (left := driver.request(request).num_prompt - driver.request(request).computed) > 0:
        driver.do(act.BeginStep())
        assert driver.allocate(request, clipped(driver, request, left)).admitted is True
        driver.close()
    driver.do(act.Finish(request))


def hit(driver: Driver, request: int) -> int:
    """What a lookup finds for a waiting request in the next plan."""
    driver.do(act.BeginStep())
    return driver.do(act.Lookup(request)).local


# --- units ----------------------------------------------------------------------------------------------------------


def hit_of_a_sibling() -> int:
    """#26296: N=2, blocks of 16, prompts share 150 tokens and differ in 400: at most 150, a multiple of 32."""
    config = configure((Group(FULL, 16),) * 2, dcp_size=2, hash_block_size=16, num_blocks=128)
    driver = Driver(config)
    computed(driver, 0, shared(150, 400, 1))
    driver.submit(1, shared(150, 400, 2))
    return hit(driver, 1)


def widths() -> tuple[int, int]:
    """#50823: N=2 and room for 8,192 blocks of 16 tokens on each rank: the group's rows, and those of its members."""
    length = 8192 * 16 * 2
    config = configure((Group(FULL, 16),), dcp_size=2, max_model_len=length)
    return config.row_capacity[0], geometry.attention_row_width(length, 16, True, 2)


def keyed_boundaries() -> list[int]:
    """kvcached#451: blocks of 32 and 16, hashes of 16, 64 of 65 tokens cached: what the blocks of 32 are registered for."""
    driver = Driver(configure((Group(FULL, 32), Group(FULL, 16)), num_blocks=10))
    computed(driver, 0, 65)
    return sorted(driver.keys(0))


def hits_of_resends() -> list[int]:
    """vllm-ascend#13330: one entry spans 512 tokens in blocks of 128 (here by N=4), prompts of 2,048 and 4,096 sent twice."""
    found = []
    for tokens in (2048, 4096):
        driver = Driver(configure((Group(FULL, 128), Group(FULL, 128, False)), dcp_size=4, max_model_len=8192, num_blocks=64))
        computed(driver, 0, tokens)
        driver.submit(1, tokens)
        found.append(hit(driver, 1))
    return found


def state_boundaries() -> list[int]:
    """sglang#34760: N=2, states every 4 tokens, pages of 8: what the state at 12 is registered for."""
    driver = Driver(configure((Group(FULL, 4), Group(MAMBA, 4)), dcp_size=2, num_blocks=12))
    driver.submit(0, 13)
    driver.chunk(0, 12)
    return sorted(driver.keys(1))


def columns_for_the_longest() -> tuple[int, int]:
    """vllm-ascend#11466: three speculative blocks; the columns of a row, and those of a request of maximum length."""
    config = configure((Group(FULL, 16), Group(MAMBA, 16, speculative_blocks=3)), max_model_len=160, num_draft_tokens=3)
    return config.row_capacity[1], -(-160 // 16) + 3


def groups_without_the_last_column() -> list[int]:
    """#54296: groups of 4,352 and of 4 tokens, a million tokens: the mapped groups whose row ends before the last position."""
    groups = (Group(FULL, 4352), Group(SCRATCH, 4), Group(FULL, 4352))
    config = configure(groups, max_model_len=1_048_576)
    last = config.max_model_len - 1
    return [g for g in config.positional if last // config.groups[g].block_size >= config.row_capacity[g]]


# --- hits -----------------------------------------------------------------------------------------------------------


def hit_after_a_failed_attempt() -> tuple[int, int]:
    """#18957: 8 tokens are hit, the allocation fails, another request takes their blocks: the second answer."""
    driver = Driver(configure((Group(FULL, 4),), num_blocks=6))
    computed(driver, 0, 8)
    driver.submit(1, shared(0, 20, 1))
    driver.chunk(1, 8)
    driver.submit(2, shared(8, 9, 2))
    first = hit(driver, 2)
    assert driver.do(act.Allocate(2, 9, first)).admitted is False
    driver.close()
    driver.do(act.BeginStep())
    assert driver.do(act.Allocate(1, 12)).admitted is True
    return first, driver.do(act.Lookup(2)).local


def hit_behind_a_gap() -> int:
    """llm-d-inference-sim#705: three blocks are cached, the first is evicted: no token of the rest is a hit."""
    driver = Driver(configure((Group(FULL, 4),), num_blocks=6))
    computed(driver, 0, 13)
    (first,) = driver.keys(0)[4]
    driver.do(act.EvictBlocks((first,)))
    driver.submit(1, 13)
    return hit(driver, 1)


def window_of_a_hit() -> tuple[int, list[bool]]:
    """#17398: window 4 in blocks of 2 and EAGLE: the hit of a resend, and which of its entries are there."""
    config = configure((Group(FULL, 2), Group(WINDOW, 2, False, window=4)), use_eagle=True, num_blocks=24)
    driver = Driver(config)
    computed(driver, 0, 8)
    driver.submit(1, shared(8, 4, 1))
    driver.do(act.BeginStep())
    found = driver.do(act.Lookup(1))
    return found.local, [block > 0 for block in found.lists[1]]


def hit_with_two_windows() -> int:
    """TensorRT-LLM#10875 by 32: full attention reaches 16 tokens and a window of 16 reaches 32: the smaller counts."""
    config = configure((Group(FULL, 4), Group(WINDOW, 4, False, window=16)), num_blocks=32)
    driver = Driver(config)
    computed(driver, 0, 33)
    driver.do(act.EvictBlocks(tuple(driver.keys(0)[20])))
    driver.submit(1, 33)
    return hit(driver, 1)


# --- EAGLE ----------------------------------------------------------------------------------------------------------


def resend(config: Config, tokens: int) -> int:
    """The hit of a prompt that is sent a second time."""
    driver = Driver(config)
    computed(driver, 0, tokens)
    driver.submit(1, tokens)
    return hit(driver, 1)


def hits_around_a_block_end() -> list[int]:
    """#54713: EAGLE, retention 0, prompts of 127, 128 and 160 tokens sent twice; the window group has blocks of a hash."""
    groups = (Group(FULL, 64), Group(MAMBA, 64), Group(WINDOW, 16, False, window=17))
    config = configure(groups, hash_block_size=16, retention=0, use_eagle=True, num_blocks=64)
    return [resend(config, tokens) for tokens in (127, 128, 160)]


def hit_under_retention() -> int:
    """local-inference-lab/vllm#556, scaled: EAGLE, retention 0, a prompt of more than two blocks sent twice."""
    groups = (Group(FULL, 64), Group(MAMBA, 64))
    return resend(configure(groups, hash_block_size=16, retention=0, use_eagle=True, num_blocks=32), 100)


def hit_beside_a_drafter() -> int:
    """local-inference-lab/vllm#466: N=8, unit 1,536, a drafter with a cache of its own, nine units of a prompt cached."""
    config = configure((Group(FULL, 192),), dcp_size=8, max_model_len=16_384, num_blocks=32, num_draft_tokens=1)
    return resend(config, 13_825)


# --- allocation -----------------------------------------------------------------------------------------------------


def tables_after(attempts: int) -> list[list[int]]:
    """inference-sim#354: the tables of a request that is admitted after so many attempts that failed."""
    driver = Driver(configure((Group(FULL, 4),), num_blocks=6))
    driver.submit(0, 8)
    driver.chunk(0, 8)
    driver.submit(1, shared(0, 16, 1))
    driver.do(act.BeginStep())
    for _ in range(attempts):
        driver.do(act.Lookup(1))
        assert driver.do(act.Allocate(1, 16)).admitted is False
    driver.do(*macros.run([]), act.Finish(0), act.ResetCache())
    driver.do(act.BeginStep())
    driver.allocate(1, 16)
    return driver.tables(1)


def demand_of_a_resend() -> object:
    """sonar#661: ten blocks cached, two evicted, the eight others all that is free: ten are needed, so refuse."""
    driver = Driver(configure((Group(FULL, 4),), num_blocks=11))
    computed(driver, 0, 40)
    driver.submit(1, shared(0, 8, 1))
    driver.chunk(1, 8)
    driver.submit(2, 40)
    assert hit(driver, 2) == 32
    moment = judge.attempt(driver.world, act.Allocate(2, 8, 32))
    return moment.refusal.code if moment.refusal else (moment.record.demand, moment.record.admitted)  # type: ignore[union-attr]


# --- the worker -----------------------------------------------------------------------------------------------------


def depth_of_the_initial_state() -> int:
    """tpu-inference#3412: B is admitted with the prefix of A; how many tokens stand in the state that B starts from."""
    driver = Driver(configure((Group(FULL, 4), Group(MAMBA, 4)), num_blocks=12))
    computed(driver, 0, 9)
    driver.submit(1, shared(8, 4, 1))
    driver.do(act.BeginStep())
    driver.allocate(1, 4)
    driver.do(*macros.CLOSE, *macros.EXECUTE[:-1])
    before = driver.world
    ((_, _, _, block, boundary),) = driver.do(macros.EXECUTE[-1]).reads
    assert boundary == 8
    state = before.contents[block][1:]
    return before.prefixes.depth[state[0]] if state else -1


def row_of_a_resumed_request() -> tuple[tuple[int, ...], list[int]]:
    """vllm-rbln#676: planned, preempted before the worker was told, resumed: the row of the worker and the table."""
    driver = Driver(configure((Group(FULL, 4),), num_blocks=8))
    driver.submit(0, 12)
    driver.chunk(0, 4)
    driver.do(act.BeginStep(), act.Allocate(0, 4), act.Withdraw(0))
    driver.close()
    driver.do(act.BeginStep())
    driver.allocate(0, 4)
    driver.do(*macros.CLOSE)
    return driver.world.worker.rows[0][driver.world.steps[0].scheduled[0].row], driver.tables(0)[0]


def column_of_a_loaded_state() -> tuple[int, int]:
    """#51766: two blocks loaded, three speculative blocks: the running column at the worker, and that of the state."""
    groups = (Group(FULL, 4), Group(MAMBA, 4, speculative_blocks=3))
    driver = Driver(configure(groups, num_draft_tokens=3, num_blocks=32, connectors=(False,)))
    driver.submit(0, 12)
    driver.do(act.BeginStep(), act.Lookup(0), act.Allocate(0, 4, 0, 8), *macros.CLOSE)
    entry = driver.world.steps[0].scheduled[0]
    return driver.world.worker.columns[entry.row][1], entry.start // 4 - 1


# --- steps in flight ------------------------------------------------------------------------------------------------


def preempted_in_flight(config: Config, *steps: tuple[int, tuple[int, ...], tuple[int, ...]]) -> Driver:
    """One request: (tokens, drafts, output) of its steps, the last of them preempted in flight; then its output arrives."""
    driver = Driver(config)
    driver.submit(0, 24)
    for at, (tokens, drafts, output) in enumerate(steps):
        driver.do(act.BeginStep())
        if not driver.request(0).computed:
            driver.do(act.Lookup(0))
        driver.do(act.Allocate(0, tokens, drafts=drafts))
        driver.dispatch()
        if at == len(steps) - 1:
            driver.do(act.BeginStep(), act.Preempt(0))
            driver.dispatch()
        driver.do(*macros.EXECUTE, act.Output(0, output))
    driver.do(*macros.EXECUTE)
    return driver


def window_behind_a_late_output() -> tuple[int, list[bool]]:
    """vllm-ascend#14301: a chunk of 8 preempted in flight; what is in flight afterwards, and the window of a later chunk."""
    groups = (Group(FULL, 4), Group(WINDOW, 4, False, window=6))
    driver = preempted_in_flight(configure(groups, num_blocks=32, max_steps_in_flight=2), (8, (), ()))
    landed = driver.request(0).in_flight
    driver.chunk(0, 4)
    driver.chunk(0, 4)
    return landed, [block > 0 for block in driver.tables(0)[1]]


def computed_after_a_late_output(drafts: int) -> int:
    """#49620: a decode with so many drafts is preempted in flight: the computed tokens once its output has arrived."""
    config = configure((Group(FULL, 4),), num_blocks=32, max_steps_in_flight=2, num_draft_tokens=3)
    guessed = tuple(range(50, 50 + drafts))
    return preempted_in_flight(config, (24, (), (9,)), (1 + drafts, guessed, (*guessed, 8))).request(0).computed


# --- events ---------------------------------------------------------------------------------------------------------


def stored(driver: Driver, group: int) -> list[tuple[int, int, int]]:
    """(boundary, size, boundary of the parent) of what a group announced so far."""
    depth = driver.world.prefixes.depth
    said = [event for record in driver.records for event in record.events if event.kind == "stored" and event.group == group]
    return [(event.boundary, event.size, depth[event.parent] if event.parent >= 0 else 0) for event in said]


def event_sizes() -> list[int]:
    """sglang#35298: pages of 64 under N=2: the tokens of each announced block."""
    driver = Driver(configure((Group(FULL, 64),), dcp_size=2, num_blocks=8, events=True))
    computed(driver, 0, 257)
    return [size for _, size, _ in stored(driver, 0)]


def unknown_parents() -> list[int]:
    """#58119: blocks of 1,536, hashes of 128, a prompt tail at 1,792: the parents that were not announced before."""
    groups = (Group(FULL, 1536), Group(MAMBA, 1536))
    driver = Driver(configure(groups, hash_block_size=128, max_model_len=4096, num_blocks=8, events=True))
    computed(driver, 0, 1800)
    known = {0} | {boundary for boundary, _, _ in stored(driver, 0)}
    assert known == {0, 1536, 1792}
    return [parent for _, _, parent in stored(driver, 0) if parent not in known]


# --- offloading -----------------------------------------------------------------------------------------------------


def stored_blocks_and_keys() -> tuple[int, int]:
    """#41549: blocks of 16 under N=2, 600 tokens: the blocks that offloading counts, and the chunks that have a key."""
    config = configure((Group(FULL, 16),), dcp_size=2, num_blocks=8)
    connector = native.resolve(config)
    (chunked,) = connector.groups
    hashed = tuple(range(32, 601, 32))
    return native.storable_chunks(config, connector, chunked, 600), len(
        [native.chunk_key(hashed, chunked, j) for j in range(18)]
    )


REPORTS = (
    Report("M-PUB-1", hit_of_a_sibling, 128, 288),
    Report("M-PUB-2", stored_blocks_and_keys, (18, 18), (37, 18)),
    Report("M-PUB-4", widths, (8192, 8192), (16384, 8192)),
    Report("M-PUB-8", event_sizes, [128, 128], [64, 64]),
    Report("M-PUB-14", keyed_boundaries, [32, 64], [16, 32]),
    Report("M-PUB-20", columns_for_the_longest, (13, 13), (10, 13)),
    Report("M-PUB-22", groups_without_the_last_column, [], [1]),
    Report("M-PUB-28", window_of_a_hit, (6, [False, True, True]), (6, [False, False, True])),
    Report("M-PUB-29", hit_after_a_failed_attempt, (8, 0), (8, 8)),
    Report("M-PUB-32", hit_behind_a_gap, 0, 8),
    Report("M-PUB-33", hit_with_two_windows, 16, 32),
    Report("M-PUB-36", hits_of_resends, [1536, 3584], [0, 512]),
    Report("M-PUB-40", hits_around_a_block_end, [96, 112, 144], [96, 0, 0]),
    Report("M-PUB-41", hit_under_retention, 80, 0),
    Report("M-PUB-46", hit_beside_a_drafter, 13_824, 12_288),
    Report("M-PUB-57", state_boundaries, [12], [8]),
    Report("M-PUB-66", column_of_a_loaded_state, (1, 1), (4, 1)),
    Report("M-PUB-68", depth_of_the_initial_state, 8, 9),
    Report("M-PUB-72", window_behind_a_late_output, (0, [False, True, True, True]), (-8, [False, False, False, True])),
    Report("M-PUB-92", lambda: [computed_after_a_late_output(drafts) for drafts in (0, 1, 3)], [0, 0, 0], [1, 2, 4]),
    Report("M-PUB-109", row_of_a_resumed_request, ((1, 2), [1, 2]), ((1, 2, 2), [1, 2])),
    Report(
        "M-PUB-166",
        lambda: (tables_after(0), tables_after(1)),
        ([[3, 4, 5, 2]], [[3, 4, 5, 2]]),
        ([[3, 4, 5, 2]], [[4, 5, 3, 2]]),
    ),
    Report("M-PUB-156", unknown_parents, [], [1664]),
    Report("M-PUB-170", demand_of_a_resend, (10, False), "pool-exhausted"),
)


@pytest.mark.parametrize("report", REPORTS, ids=[report.fault for report in REPORTS])
def test_the_numbers_of_the_report(report: Report) -> None:
    assert report.observe() == report.right
    fault = faults.by_id(report.fault)
    with faults.planted(fault), pytest.MonkeyPatch.context() as patch:
        if fault.profile is not None:
            patch.setitem(DEFAULTS, "profile", faults.with_field(SOUND, fault.profile))
        assert report.observe() == report.wrong


# --- the page -------------------------------------------------------------------------------------------------------

PAGE = (ROOT / "docs/public-faults.md").read_text(encoding="utf-8")
SEMANTICS = (ROOT / "docs/semantics.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"^\| (\d+) \| \[([^\]]+)#(\d+)\]\((https://github\.com/[^)\s]+)\) \| (.+) \| (.+) \| (.+) \| (.+) \|$", re.MULTILINE
)
NUMBERS = (
    1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 16, 17, 18, 20, 21, 22, 24, 25, 26, 28, 29, 30, 32, 33, 34, 36, 37, 38, 40, 41, 42, 44, 45,
    46, 48, 49, 50, 52, 53, 54, 56, 57, 58, 60, 61, 62, 64, 65, 66, 68, 69, 70, 72, 73, 74, 76, 77, 78, 80, 81, 82, 84, 85, 86, 88,
    89, 90, 92, 93, 94, 96, 97, 98, 100, 101, 102, 104, 105, 106, 108, 109, 110, 112, 113, 114, 116, 117, 118, 120, 121, 122, 124,
    125, 126, 128, 129, 130, 132, 133, 134, 136, 137, 138, 140, 141, 142, 144, 145, 146, 148, 149, 150, 152, 153, 154, 156, 157, 158,
    160, 161, 162, 164, 165, 166, 168, 169, 170, 172, 173, 174, 176, 177,
)  # fmt: skip


@frozen
class Entry:
    """One row of the page."""

    number: int
    name: str
    thread: str
    url: str
    text: str
    kind: str
    disposition: str
    where: str


ENTRIES = [Entry(int(found[0]), *found[1:]) for found in ROW.findall(PAGE)]
PLANTED = {fault.id: fault for fault in faults.ALL}
PUBLIC = [name for name in PLANTED if name.startswith("M-PUB-")]


def entries(start: str) -> list[Entry]:
    """The entries whose disposition starts like this."""
    return [entry for entry in ENTRIES if entry.disposition.startswith(start)]


def test_the_page_has_every_entry_once() -> None:
    assert len(NUMBERS) == 133
    assert [entry.number for entry in ENTRIES] == list(NUMBERS)
    assert PAGE.count("\n| ") - PAGE.split("| # |")[0].count("\n| ") - 1 - PAGE.split("## What")[1].count("\n| ") == 133


@pytest.mark.parametrize("entry", ENTRIES, ids=[str(entry.number) for entry in ENTRIES])
def test_an_entry_says_what_where_and_why(entry: Entry) -> None:
    assert entry.url.endswith((f"/pull/{entry.thread}", f"/issues/{entry.thread}"))
    assert f"/{entry.name.rpartition('/')[2]}/" in entry.url
    assert f"\n| {entry.kind} | " in PAGE.split("| # |")[0], "no class of the legend"
    assert len(entry.text) > 20
    assert re.fullmatch(r"= M-[A-Z0-9]+-\d+|new, (device|host): [A-Z]+-\d+|quirk `\w+`|adapter|out", entry.disposition)


def test_every_fault_that_is_named_exists() -> None:
    named = set(re.findall(r"\bM-[A-Z0-9]+-\d+", PAGE))
    defined = set(re.findall(r"^\| (M-[A-Z0-9]+-\d+) \|", SEMANTICS, re.MULTILINE))
    assert named <= defined
    planted = {name for entry in ENTRIES for name in re.findall(r"fault (M-[A-Z0-9]+-\d+)", entry.where)}
    assert planted - set(PLANTED) == set()


def test_what_is_the_same_as_a_known_fault_is_named_where_it_lives() -> None:
    for entry in entries("= "):
        name = entry.disposition.removeprefix("= ")
        assert entry.where.startswith(f"fault {name}"), entry


def test_every_new_entry_has_a_planted_fault() -> None:
    named = set()
    for entry in entries("new"):
        (name,) = re.findall(r"^fault (M-PUB-\d+)", entry.where)
        named.add(name)
        fault = PLANTED[name]
        law = entry.disposition.split()[2]
        assert law in fault.laws, entry
        repository = "" if entry.name == "vllm" else entry.name
        assert f"{repository}#{entry.thread}" in fault.source.split(", "), entry
    quirks = {name for entry in entries("quirk") for name in re.findall(r"M-PUB-\d+", entry.where)}
    assert sorted(named | quirks) == sorted(PUBLIC)


def test_every_quirk_is_a_field_of_the_profile() -> None:
    for entry in entries("quirk"):
        field = entry.disposition.removeprefix("quirk ").strip("`")
        assert field in fields_dict(Profile)
        (name,) = re.findall(r"fault (M-[A-Z]+-\d+)", entry.where)
        assert dict([PLANTED[name].profile or ("", "")]).keys() == {field}


def test_the_page_counts_its_entries() -> None:
    words = {
        "= M": "the same",
        "new, device": "new on the device",
        "new, host": "new on the host",
        "quirk": "quirks",
        "adapter": "for an",
        "out": "out",
    }
    kinds = Counter(next(word for word in words if entry.disposition.startswith(word)) for entry in ENTRIES)
    assert all(re.search(rf"\b{kinds[kind]} {words[kind]}", PAGE) for kind in words)


def test_the_scopes_that_are_named_exist() -> None:
    named = set(re.findall(r"`([a-z0-9+-]+)`", PAGE.split("## What")[1]))
    assert named
    assert named - {scope.name for scope in SCOPES} == set()


def test_every_public_fault_has_its_numbers_tested() -> None:
    assert sorted(report.fault for report in (*REPORTS, *HOST_REPORTS)) == sorted(PUBLIC)
