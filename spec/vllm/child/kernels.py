"""A release's Triton kernels run as plain Python, one program after the other, on the memory of CPU tensors.

Only what the kernels of block tables use is there. A store outside a tensor's own memory is not performed but noted: on a
device it would land in whatever lies there.
"""

# pyright: reportMissingImports=false
# (numpy is there where this runs)

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch


class Outside(Exception):
    """A kernel loads from an address that belongs to no tensor."""


class Scalar(int):
    """One loaded integer."""

    def to(self, kind: Any) -> Scalar:
        """Return itself: widths do not matter here."""
        return self


class Pointer:
    """An address, or one per lane: a tensor's whole memory and offsets into it, counted in elements."""

    def __init__(self, memory: Any, offset: Any, tensor: torch.Tensor) -> None:
        self.memory = memory
        self.offset = offset
        self.tensor = tensor

    def __add__(self, more: Any) -> Pointer:
        return Pointer(self.memory, self.offset + more, self.tensor)

    __radd__ = __add__

    def __sub__(self, less: Any) -> Pointer:
        return Pointer(self.memory, self.offset - less, self.tensor)

    def to(self, kind: Any) -> Pointer:
        """Return itself."""
        return self


class Language:
    """In the place of ``triton.language`` while kernels run: the names that they use."""

    int32, int64 = "int32", "int64"

    def __init__(self) -> None:
        self.programs: tuple[int, ...] = (1, 1, 1)
        self.program: tuple[int, ...] = (0, 0, 0)
        self.tensors: list[torch.Tensor] = []
        self.outside: list[tuple[torch.Tensor, int, int]] = []
        self.range = range

    @staticmethod
    def constexpr(value: Any) -> Any:
        """Return the value."""
        return value

    @staticmethod
    def pointer_type(kind: Any) -> tuple[str, Any]:
        """Return a mark that ``cast`` understands."""
        return ("pointer", kind)

    @staticmethod
    def multiple_of(value: Any, factor: int) -> Any:
        """Return the value: a hint for compilers."""
        return value

    @staticmethod
    def arange(start: int, end: int) -> Any:
        """Return the lanes' numbers."""
        return np.arange(start, end)

    @staticmethod
    def where(condition: Any, yes: Any, no: Any) -> Any:
        """Return ``yes`` or ``no`` per lane."""
        chosen = np.where(condition, yes, no)
        return chosen if chosen.ndim else chosen[()]

    @staticmethod
    def maximum(one: Any, other: Any) -> Any:
        """Return the larger value per lane."""
        return np.maximum(one, other)

    @staticmethod
    def minimum(one: Any, other: Any) -> Any:
        """Return the smaller value per lane."""
        return np.minimum(one, other)

    def program_id(self, axis: int) -> int:
        """Return the running program's place in the grid."""
        return self.program[axis]

    def num_programs(self, axis: int) -> int:
        """Return the grid's size."""
        return self.programs[axis]

    def cast(self, value: Any, kind: Any) -> Any:
        """Return the pointer that an address stands for; anything else stays as it is."""
        if not (isinstance(kind, tuple) and kind[0] == "pointer"):
            return value
        for tensor in self.tensors:
            if tensor.data_ptr() == int(value):
                return pointer(tensor)
        raise Outside(f"no tensor lies at {int(value):#x}")

    @staticmethod
    def load(source: Pointer, mask: Any = None, other: Any = 0) -> Any:
        """Return what lies at the pointer, ``other`` where the mask is off. Raises Outside."""
        offsets, on = np.broadcast_arrays(source.offset, True if mask is None else mask)
        held = on & (offsets >= 0) & (offsets < len(source.memory))
        if (on & ~held).any():
            raise Outside(f"a load at {offsets[on & ~held].tolist()[:3]} of {len(source.memory)} elements")
        found = np.where(held, source.memory[np.where(held, offsets, 0)], np.asarray(other, source.memory.dtype))
        if found.ndim:
            return found
        return found[()] if source.memory.dtype == np.bool_ else Scalar(found[()])

    def store(self, target: Pointer, value: Any, mask: Any = None) -> None:
        """Put values at the pointer where the mask is on; what lies outside the tensor's memory is noted."""
        offsets, values, on = np.broadcast_arrays(target.offset, value, True if mask is None else mask)
        for offset, one in zip(offsets[on].tolist(), values[on].tolist(), strict=True):
            if 0 <= offset < len(target.memory):
                target.memory[offset] = one
            else:
                self.outside.append((target.tensor, offset, one))


def pointer(tensor: torch.Tensor) -> Pointer:
    """Return the pointer to a tensor's first element; it reaches as far as the tensor's memory does."""
    whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
    return Pointer(whole.numpy(), tensor.storage_offset(), tensor)


class Kernel:
    """A kernel that is started as on a device, ``kernel[grid](...)``, and runs its own Python body."""

    def __init__(self, body: Callable[..., None], language: Language) -> None:
        self.body = body
        self.language = language

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def start(*arguments: Any, **settings: Any) -> None:
            given = [pointer(one) if isinstance(one, torch.Tensor) else one for one in arguments]
            named = {name: pointer(one) if isinstance(one, torch.Tensor) else one for name, one in settings.items()}
            self.language.programs = (*grid, 1, 1)[:3]
            for place in itertools.product(*(range(size) for size in self.language.programs)):
                self.language.program = place
                self.body(*given, **named)

        return start


class Buffer:
    """In the place of a buffer that the host writes and a device reads: one memory for both."""

    def __init__(self, size: Any, dtype: torch.dtype) -> None:
        self.cpu = torch.zeros(size, dtype=dtype)
        self.np = self.cpu.numpy()
        self.uva = View(self.cpu)


class View:
    """What a release takes from a buffer: by slicing in some releases, by a call in others."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __getitem__(self, key: Any) -> torch.Tensor:
        return self.tensor[key]

    def __call__(self, n: int | None = None) -> torch.Tensor:
        """Return the first n rows, all without n."""
        return self.tensor if n is None else self.tensor[:n]


def put_in(buffers: Any, tables: Any) -> Language:
    """Let the kernels of the two modules run here, and their buffers be plain memory. Returns the language they then speak."""
    language = Language()
    for where in (buffers, tables):
        where.tl = language
        for name in ("_apply_write_kernel", "_gather_block_tables_kernel", "_compute_slot_mappings_kernel"):
            body = getattr(where, name, None)
            if body is not None:
                body = body.body if isinstance(body, Kernel) else getattr(body, "fn", body)
                setattr(where, name, Kernel(body, language))
        where._load_ptr = getattr(where._load_ptr, "fn", where._load_ptr)
    buffers.UvaBuffer = Buffer
    if hasattr(buffers, "NonUvaBuffer"):
        buffers.NonUvaBuffer = Buffer
    buffers.async_tensor_h2d = _to_device
    return language


def _to_device(data: Any, *, dtype: torch.dtype, **_: Any) -> torch.Tensor:
    return torch.tensor(data, dtype=dtype)
