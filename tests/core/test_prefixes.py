"""The prefix table: what its functions refuse."""

from __future__ import annotations

import pytest

from kvproof.core import prefixes
from kvproof.core.prefixes import Prefixes


def test_a_prefix_of_fewer_than_no_tokens_is_refused():
    table, root = prefixes.root(Prefixes(), 0)
    table, tip = prefixes.extend(table, root, (1, 2, 3))
    assert prefixes.ancestor(table, tip, 0) == root
    with pytest.raises(ValueError, match="-1 tokens"):
        prefixes.ancestor(table, tip, -1)
