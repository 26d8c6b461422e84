"""Block ids and prefix ids of an implementation in the model's terms."""

from __future__ import annotations

from kvproof.core import prefixes
from kvproof.core.prefixes import Prefixes
from kvproof.spec.conformance.adapter import prefix_id
from kvproof.spec.conformance.names import Blocks, Digests


def test_ids_of_the_pool_keep_their_numbers() -> None:
    blocks = Blocks(5)
    assert blocks.all_inward((3, 0, 4, 1, 3)) == (3, 0, 4, 1, 3)
    assert [blocks.outward(block) for block in range(5)] == [0, 1, 2, 3, 4]


def test_ids_are_counted_from_the_null_block() -> None:
    blocks = Blocks(5, null=100)
    assert blocks.all_inward((100, 104, 101)) == (0, 4, 1)
    assert [blocks.outward(block) for block in range(5)] == [100, 101, 102, 103, 104]
    assert blocks.outward(5) == 105


def test_other_ids_are_renamed_in_the_order_in_which_they_are_seen() -> None:
    blocks = Blocks(4, null=9)
    assert blocks.all_inward((9, 0, 2, 1)) == (0, 1, 2, 3)
    assert [blocks.outward(block) for block in range(4)] == [9, 0, 2, 1]


def test_one_id_too_many_stands_out_of_the_pool() -> None:
    blocks = Blocks(3)
    assert blocks.all_inward((1, 2, 3, 7)) == (1, 2, 3, 7)


def _table(*prompts: tuple[int, tuple[int, ...]]) -> Prefixes:
    table = Prefixes()
    for context, tokens in prompts:
        table, root = prefixes.root(table, context)
        table, _ = prefixes.extend(table, root, tokens)
    return table


def test_prefix_ids_name_tokens_and_context() -> None:
    table, digests = _table((0, (1, 12, 3)), (7, (1, 12)), (0, (1, 12, 5))), Digests()
    for context, tokens in ((0, (1, 12, 3)), (7, (1, 12)), (0, (1, 12, 5)), (0, (1,)), (7, (1,))):
        node = digests.known(table, prefix_id(tokens, context), len(tokens))
        assert node is not None
        assert digests.of(table, node) == prefix_id(tokens, context)
        path = prefixes.path(table, node, 0, len(tokens))
        assert tuple(table.token[at] for at in path) == tokens
    assert digests.known(table, prefix_id((1, 12), 7)) == digests.known(table, prefix_id((1, 12), 7), 2)
    assert digests.known(table, prefix_id((1, 12), 8)) is None


def test_a_prefix_that_nobody_had_is_a_path_of_its_own() -> None:
    table, digests = _table((0, (1, 2))), Digests()
    more, node = digests.node(table, prefix_id((9, 9)), 2)
    assert (more.depth[node], more.parent[: len(table.parent)]) == (2, table.parent)
    assert all(token < 0 for token in more.token[len(table.token) :])
    assert digests.node(more, prefix_id((9, 9)), 2) == (more, node)
    again, other = digests.node(more, prefix_id((1, 2)), 1)  # the id of two tokens at another boundary is nobody's either
    assert again.depth[other] == 1
    assert again is not more
