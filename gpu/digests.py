"""What the bytes are: digests of prefixes, tags of positions, keys and recurrent states, all in wrapping 64-bit integers.

Everything is exact, so that equal means equal. A prefix digest is a linear recurrence over mixed tokens, and so is a
recurrent state; a chunk of either is one multiplication, one running sum and one more multiplication (``scan``), whatever
its length. The same formulas stand here twice: on tensors, for the device, and in Python's integers, for what the model
expects; neither calls the other.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

WORDS = 2
"""The 64-bit words of a recurrent state."""

_MASK = (1 << 64) - 1
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_PREFIX = 0x5851F42D4C957F2D
_STATE = (0xD1342543DE82EF95, 0xAF251AF3B0F025B5)
_CONTEXT, _TOKEN, _WEIGHT = 0x3C6EF372FE94F82B, 0x510E527FADE682D1, 0x1F83D9ABFB41BD6B
_TAG, _KEY, _UPDATE, _WORD = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5


def signed(value: int) -> int:
    """Return an integer modulo 2^64 as a signed one: the value that a 64-bit register would hold."""
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


# --- in Python's integers ---------------------------------------------------------------------------------------------


def mixed(value: int) -> int:
    """Return a value with its bits stirred."""
    value = (value * _MIX[0]) & _MASK
    value ^= value >> 31
    value = (value * _MIX[1]) & _MASK
    return signed(value ^ (value >> 29))


def root(context: int) -> int:
    """Return the digest of no tokens under a context."""
    return mixed(context + _CONTEXT)


def following(digest: int, token: int) -> int:
    """Return the digest of a prefix with one more token."""
    return signed(digest * _PREFIX + mixed(token + _TOKEN))


def tag(digest: int, group: int) -> int:
    """Return the tag of a prefix's last position in a group: what its slot holds."""
    return mixed(digest + _TAG * (group + 1))


def key(digest: int, group: int) -> int:
    """Return the key of a boundary in a group; 0 stands for no key and does not occur."""
    return mixed(digest + _KEY * (group + 1)) or 1


def next_state(state: tuple[int, ...], token: int, context: int, group: int) -> tuple[int, ...]:
    """Return the recurrent state of a group behind one more token; at the beginning it is zero."""
    return tuple(
        signed(value * _STATE[word] + mixed(token + _UPDATE * (context * 64 + group * WORDS + word + 1)))
        for word, value in enumerate(state)
    )


def weight(position: int) -> int:
    """Return the weight with which the tag at a position enters an output."""
    return mixed(position + _WEIGHT) | 1


def state_part(state: tuple[int, ...], group: int) -> int:
    """Return what a recurrent state adds to an output."""
    return signed(sum(value * signed(_WORD * (group * WORDS + word + 1)) for word, value in enumerate(state)))


# --- on tensors -------------------------------------------------------------------------------------------------------


def mix(values: Tensor) -> Tensor:
    """Return int64 values with their bits stirred; shape kept."""
    values = values * signed(_MIX[0])
    values = values ^ ((values >> 31) & ((1 << 33) - 1))
    values = values * signed(_MIX[1])
    return values ^ ((values >> 29) & ((1 << 35) - 1))


@functools.lru_cache(maxsize=64)
def _powers(multiplier: int, count: int, device: str) -> tuple[Tensor, Tensor]:
    """Return the powers 1 to ``count`` of an odd multiplier, and those of its inverse modulo 2^64."""
    inverse = pow(multiplier, -1, 1 << 64)
    up, down = [multiplier & _MASK], [inverse]
    for _ in range(count - 1):
        up.append((up[-1] * multiplier) & _MASK)
        down.append((down[-1] * inverse) & _MASK)
    return (
        torch.tensor([signed(value) for value in up], dtype=torch.int64, device=device),
        torch.tensor([signed(value) for value in down], dtype=torch.int64, device=device),
    )


def scan(multiplier: int, start: Tensor, added: Tensor) -> Tensor:
    """Return x[1..n] of x[i + 1] = multiplier * x[i] + added[i] from x[0] = start.

    ``start`` has shape [...], ``added`` [..., n] or one that broadcasts to it, the result [..., n].
    """
    count = added.shape[-1]
    if not count:
        return added
    size = 1 << (count - 1).bit_length()
    up, down = _powers(multiplier, size, str(added.device))
    return up[:count] * (start.unsqueeze(-1) + torch.cumsum(added * down[:count], -1))


def prefixes(start: Tensor, tokens: Tensor) -> Tensor:
    """Return the digests behind each of these tokens; ``start`` is the digest before them, of shape []."""
    return scan(_PREFIX, start, mix(tokens + signed(_TOKEN)))


def tags(digests: Tensor, group: int) -> Tensor:
    """Return the tag of the last position of each prefix; shape kept."""
    return mix(digests + signed(_TAG * (group + 1)))


def keys(digests: Tensor, group: int) -> Tensor:
    """Return the key of each boundary; shape kept."""
    found = mix(digests + signed(_KEY * (group + 1)))
    return torch.where(found == 0, 1, found)


def states(start: Tensor, tokens: Tensor, context: int, group: int) -> Tensor:
    """Return the states behind each of n tokens, from the states of each rank before them: [R, WORDS] to [R, WORDS, n]."""
    words = []
    for word in range(WORDS):
        added = mix(tokens + signed(_UPDATE * (context * 64 + group * WORDS + word + 1)))
        words.append(scan(_STATE[word], start[:, word], added))
    return torch.stack(words, 1)


def weights(positions: Tensor) -> Tensor:
    """Return the weight of each position; shape kept."""
    return mix(positions + signed(_WEIGHT)) | 1


def state_parts(states: Tensor, group: int) -> Tensor:
    """Return what states add to outputs: [R, WORDS, ...] to [R, ...]."""
    total = torch.zeros_like(states[:, 0])
    for word in range(WORDS):
        total = total + states[:, word] * signed(_WORD * (group * WORDS + word + 1))
    return total
