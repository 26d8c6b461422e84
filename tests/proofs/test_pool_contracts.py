"""CrossHair confirms the contracts of the pool, refutes their twins, and refutes them when a fault is planted."""

import ast
from pathlib import Path

import pytest

pytest.importorskip("crosshair")

from kvproof.proofs import contracts, twins

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60
LONG = 600

EXPECTED = {
    "pool": [
        "take_one_of_a_pool_with_two_keys",
        "take_two_of_a_pool_with_two_keys",
        "take_no_more_than_is_free",
        "touch_a_block",
        "touch_a_block_twice",
        "release_a_block",
        "release_two_blocks",
        "release_a_block_twice",
    ],
    "pool_keys": [
        "insert_into_a_pool_without_keys",
        "insert_into_a_pool_with_one_key",
        "promote_a_block",
        "promote_only_to_more_tokens",
        "insert_a_partial_boundary",
        "evict_a_block",
        "find_the_block_with_the_key",
        "move_the_keys",
        "restore_undoes_a_promotion",
    ],
    "pool_copies": [
        "redirect_to_a_private_copy",
        "redirect_only_the_block_in_the_table",
        "redirect_no_null_block",
        "drain_gives_back_both_ends",
    ],
    "pool_two_keys": [
        "evict_a_block_of_a_pool_with_two_keys",
        "reset_clears_an_idle_pool_only",
        "find_yields_the_first_inserted",
        "insert_into_a_pool_with_two_keys",
        "promote_a_block_of_a_pool_with_two_keys",
        "move_both_keys",
    ],
}
QUICK = ["pool", "pool_keys", "pool_copies"]

# All 16 queues instead of the four that stand for them.
EVERY_QUEUE = "four.QUEUES = four.EVERY_QUEUE\n"


def text(module):
    return (ROOT / "proofs" / f"{module}.py").read_text(encoding="utf-8")


def check(source, folder, seconds=SECONDS):
    path = folder / "contracts.py"
    path.write_text(source, encoding="utf-8")
    return contracts.check_file(path, seconds=seconds, import_path=ROOT / "tests" / "_path")


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("module", QUICK)
def test_every_contract_is_confirmed(module, tmp_path):
    assert check(text(module), tmp_path) == dict.fromkeys(EXPECTED[module], contracts.CONFIRMED)


@pytest.mark.deep
@pytest.mark.parametrize("contract", EXPECTED["pool_two_keys"])
def test_every_contract_of_two_keys_is_confirmed(contract, tmp_path):
    assert check(only("pool_two_keys", [contract]), tmp_path, LONG) == {contract: contracts.CONFIRMED}


@pytest.mark.deep
@pytest.mark.parametrize("module", QUICK)
def test_every_contract_is_confirmed_for_every_queue(module, tmp_path):
    assert check(text(module) + EVERY_QUEUE, tmp_path, LONG) == dict.fromkeys(EXPECTED[module], contracts.CONFIRMED)


@pytest.mark.parametrize("module", sorted(EXPECTED))
def test_every_twin_is_refuted(module, tmp_path):
    assert check(twins.twin_source(text(module)), tmp_path) == dict.fromkeys(EXPECTED[module], contracts.REFUTED)


def catalogued(fault):
    """Text that plants a fault of the catalogue."""
    return f"""
from kvproof.spec import faults
for place, name, replacement in faults.by_id({fault!r}).patches:
    setattr(place, name, replacement)
"""


UNCHECKED_REDIRECT = """
def unchecked(work, group, state):
    (copy,) = works.take(work, group, 1)
    work.pool = copying.retain(work.pool, copy)
    works.queue_copy(work, group, state.partial_source, copy)
    return copying.settle(state, state.partial_index, copy), copy

from kvproof.core import work as works
copying.redirect = unchecked
"""

# (module of the contracts, contracts that must be refuted, the text that plants the fault)
FAULTS = {
    "M-EVICT-1": (
        "pool",
        ["take_one_of_a_pool_with_two_keys", "take_two_of_a_pool_with_two_keys"],
        catalogued("M-EVICT-1"),
    ),
    "M-POOL-1": ("pool", ["release_a_block", "release_two_blocks"], catalogued("M-POOL-1")),
    "M-POOL-2": ("pool", ["touch_a_block", "touch_a_block_twice"], catalogued("M-POOL-2")),
    "M-POOL-3": ("pool", ["release_a_block"], catalogued("M-POOL-3")),
    "taking what there is": (
        "pool",
        ["take_no_more_than_is_free"],
        "pools.take = lambda pool, count, take=pools.take: take(pool, min(count, len(pool.free)))",
    ),
    "keyed blocks in front": (
        "pool",
        ["release_a_block", "release_two_blocks"],
        "pools.requeue = lambda free, unkeyed, keyed: keyed + free + unkeyed",
    ),
    "a block given twice is released once": (
        "pool",
        ["release_a_block_twice"],
        "pools.releasable = lambda blocks: [block for block in dict.fromkeys(blocks) if block != NULL_BLOCK]",
    ),
    "a key is inserted again": ("pool_keys", ["insert_into_a_pool_with_one_key"], "pools.holds = lambda *of: False"),
    "tokens of another boundary": (
        "pool_keys",
        ["insert_into_a_pool_without_keys"],
        "pools.insert = lambda pool, n, g, block, t, insert=pools.insert: insert(pool, n, g, block, t + 1)",
    ),
    "promotion without the increase check": (
        "pool_keys",
        ["promote_only_to_more_tokens"],
        "pools.check_increase = lambda pool, block, tokens: None",
    ),
    "promotion that keeps the smaller primary": (
        "pool_keys",
        ["promote_a_block", "insert_a_partial_boundary"],
        "pools.clear_for_promotion = lambda pool, block: pool",
    ),
    "keys that do not go": ("pool_keys", ["evict_a_block"], "pools.remove_all = lambda pool, block: pool"),
    "lookup of any group": (
        "pool_keys",
        ["find_the_block_with_the_key"],
        "pools.find = lambda pool, node, group: next((e[3] for e in pool.entries if e[0] == node), -1)",
    ),
    "keys stay with the source": (
        "pool_keys",
        ["move_the_keys"],
        "pools.move = lambda pool, source, copy: pool if pool.key_node[source] == -1 else "
        "pools.insert(pool, pool.key_node[source], pool.key_group[source], copy, pool.key_tokens[source])",
    ),
    "primary restored without its entry": (
        "pool_keys",
        ["restore_undoes_a_promotion"],
        "pools.restore_keys = lambda pool, block, primary, entries, restore=pools.restore_keys: "
        "restore(pool, block, primary, ())",
    ),
    "M-COW-2": ("pool_copies", ["redirect_to_a_private_copy"], catalogued("M-COW-2")),
    "M-COW-3": ("pool_copies", ["redirect_to_a_private_copy"], catalogued("M-COW-3")),
    "M-COW-5": ("pool_copies", ["redirect_to_a_private_copy"], catalogued("M-COW-5")),
    "M-COW-9": ("pool_copies", ["redirect_to_a_private_copy", "drain_gives_back_both_ends"], catalogued("M-COW-9")),
    "redirect without looking at the table": (
        "pool_copies",
        ["redirect_only_the_block_in_the_table", "redirect_no_null_block"],
        UNCHECKED_REDIRECT,
    ),
    "one secondary key left": (
        "pool_two_keys",
        ["evict_a_block_of_a_pool_with_two_keys"],
        "from attrs import evolve\n"
        "pools.remove_all = lambda pool, block, remove=pools.remove_all: "
        "evolve(remove(pool, block), entries=tuple(e for e in pool.entries if e not in pools.keys_of(pool, block)[:1]))",
    ),
    "reset while a block is in use": (
        "pool_two_keys",
        ["reset_clears_an_idle_pool_only"],
        "pools.reset = lambda pool: (pools.remove_all(pools.remove_all(pools.remove_all(pool, 1), 2), 3), True)",
    ),
    "the last inserted is preferred": (
        "pool_two_keys",
        ["find_yields_the_first_inserted"],
        "pools.find = lambda pool, node, group: ([-1] + [e[3] for e in pool.entries if e[:2] == (node, group)])[-1]",
    ),
    "one key for each block": (
        "pool_two_keys",
        ["insert_into_a_pool_with_two_keys"],
        "pools.insert = lambda pool, node, group, block, tokens, insert=pools.insert: "
        "pool if pool.key_node[block] != -1 else insert(pool, node, group, block, tokens)",
    ),
    "promotion that keeps the smaller keys": (
        "pool_two_keys",
        ["promote_a_block_of_a_pool_with_two_keys"],
        "pools.clear_for_promotion = lambda pool, block: pool",
    ),
    "only the primary moves": (
        "pool_two_keys",
        ["move_both_keys"],
        "pools.keys_of = lambda pool, block, keys=pools.keys_of: keys(pool, block)[:1]",
    ),
}


def only(module, names):
    """Source of a module with these of its contracts alone."""
    tree = ast.parse(text(module))
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.FunctionDef) and node.name in EXPECTED[module]) or node.name in names
    ]
    return ast.unparse(tree) + "\n"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_refuted(fault, tmp_path):
    module, names, planting = FAULTS[fault]
    assert check(only(module, names) + planting + "\n", tmp_path) == dict.fromkeys(names, contracts.REFUTED)


def test_every_contract_is_refuted_by_some_fault():
    refuted = {(module, name) for module, names, _ in FAULTS.values() for name in names}
    assert refuted == {(module, name) for module, names in EXPECTED.items() for name in names}
