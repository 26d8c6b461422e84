"""The laws of the native connector hold on every scope, and each breaks with a wrong formula (DS-6, DS-7, LV-9)."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from kvproof.core import native, reachability, retention
from kvproof.core.config import Group, configure
from kvproof.spec.engines import scopes
from kvproof.spec.engines.scopes import Scope
from kvproof.spec.laws import by_id

GROUPS = (Group("full_attention", 8), Group("mamba_align", 4), Group("sliding_window", 4, window=8, sharded=False))
_loading = native.loading

FORMULAS: list[tuple[str, ModuleType, str, Callable[..., Any]]] = [
    ("DS-6", reachability, "tokens_per_block", lambda block_size, sharded, dcp_size: block_size * dcp_size),
    ("DS-6", reachability, "storable_blocks", lambda tokens, block_size, sharded, dcp_size: tokens // block_size),
    ("DS-6", reachability, "chunk_hash_index", lambda chunk, hashes: hashes * chunk),
    ("DS-6", reachability, "handoff_storable", lambda block, boundary, limit, chunk: block != 0 and boundary <= limit),
    (
        "DS-6",
        reachability,
        "handoff_storable",
        lambda block, boundary, limit, chunk: boundary <= limit and not boundary % chunk,
    ),
    ("DS-6", reachability, "handoff_storable", lambda block, boundary, limit, chunk: block != 0 and not boundary % chunk),
    ("DS-6", native, "chunk_blocks", lambda connector, table, chunk: table[chunk : chunk + connector.blocks_per_chunk]),
    (
        "DS-7",
        reachability,
        "chunk_reachable",
        lambda j, n, count, window, eagle=False: count is None or j % count + window >= count,
    ),
    ("DS-7", reachability, "tokens_per_block", lambda block_size, sharded, dcp_size: block_size * dcp_size),
    ("DS-7", retention, "swa_store_mask", lambda index, num_storable, **sizes: retention.swa_mask(index, **sizes)),
    ("LV-9", reachability, "window_block_bound", lambda window, blocks_per_chunk: window * blocks_per_chunk),
    ("LV-9", native, "unread_blocks", lambda config, chunked, total: 0),
    ("LV-9", native, "unread_blocks", lambda config, chunked, total: total // chunked.block_tokens),
]


@pytest.mark.parametrize(("law", "module", "name", "wrong"), FORMULAS, ids=[f"{case[0]}: {case[2]}" for case in FORMULAS])
def test_a_wrong_formula_breaks_the_law(
    law: str, module: ModuleType, name: str, wrong: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(GROUPS, dcp_size=2, num_blocks=8, retention=None)
    check = by_id(law).check_config
    assert check is not None
    assert check(config) == []
    monkeypatch.setattr(module, name, wrong)
    assert check(config)


@pytest.mark.parametrize("law", ["DS-6", "DS-7", "LV-9"])
@pytest.mark.parametrize("scope", scopes.ALL, ids=[scope.name for scope in scopes.ALL])
def test_the_laws_hold_on_every_scope(law: str, scope: Scope) -> None:
    check = by_id(law).check_config
    assert check is not None
    assert check(scope.config()) in (None, [])


def test_without_keys_nothing_is_offloaded() -> None:
    """Without prefix caching H need not divide a block, and the laws say nothing."""
    config = configure(GROUPS, dcp_size=2, num_blocks=8, caching=False)
    assert [by_id(law).check_config(config) for law in ("DS-6", "LV-9")] == [None, None]  # type: ignore[misc]
