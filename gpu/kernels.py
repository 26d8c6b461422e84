"""Whole blocks in one kernel: read once, written once, with no staging buffer between. Triton comes with torch for CUDA.

Only ``copies`` imports this module, where there is a CUDA device; Triton's interpreter runs it on a CPU (TRITON_INTERPRET=1).
"""

from __future__ import annotations

from typing import Any

import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from torch import Tensor

SPAN = 1024
"""Words that one program copies."""


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _copy(
    source: tl.tensor, destination: tl.tensor, sources: tl.tensor, destinations: tl.tensor, words: tl.tensor, span: tl.constexpr
) -> None:
    pair = tl.program_id(0)
    at = tl.program_id(1) * span + tl.arange(0, span)
    inside = at < words
    first = tl.load(sources + pair).to(tl.int64) * words
    second = tl.load(destinations + pair).to(tl.int64) * words
    tl.store(destination + second + at, tl.load(source + first + at, mask=inside), mask=inside)


def copy_blocks(source: Tensor, destination: Tensor, sources: Tensor, destinations: Tensor) -> None:
    """Copy block ``sources[i]`` of one pool to block ``destinations[i]`` of another or the same one.

    Pools are int64[block, word] and contiguous. The copies of one call are unordered: no block may be both a source and a
    destination (COW-7).
    """
    words = source.shape[1]
    launch: Any = _copy
    launch[sources.numel(), triton.cdiv(words, SPAN)](source, destination, sources, destinations, words, SPAN)
