"""A release answers in the place of the model's functions of sizes, so that the laws judge the release.

What a law judges by calling ``core`` (``configure`` for HB-1 and HB-11, ``geometry`` for DS-1 to DS-3, ``native`` for DS-6) is
rebound to functions that ask the process of the release. A function that a release cannot be asked about raises NotShown; a
question that cannot come up there, as one about replicated attention before there was any, is answered by the model and noted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NoReturn, Protocol, cast

from attrs import evolve

from kvproof.core import config as configs
from kvproof.core import geometry, native, reachability
from kvproof.core.config import Config, Group
from kvproof.core.errors import ConfigError
from kvproof.core.native import Chunked, Native
from kvproof.spec.conformance.hidden import Hidden, NotShown
from kvproof.spec.vllm.headers import Inexpressible, header

Parts = Mapping[str, Mapping[str, Any]]

NOT_ASKED: tuple[tuple[ModuleType, str], ...] = (
    (geometry, "has_context"),
    (native, "segment_chunks"),
    (native, "block_mask"),
    (native, "loading"),
    (reachability, "alignment_chunk_count"),
    (reachability, "chunk_reachable"),
)
"""What the laws judge of ``core`` and nobody asks a release about."""

LAYOUT_TOKENS = 300


class NotThere(NotShown):
    """A release has nothing that the question could be about: it refuses the configuration, or lacks the feature."""


class Answers(Protocol):
    """A process that answers for a release."""

    def geometry(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the parts of a configuration's geometry that ``parts`` names."""
        ...


class Subject:
    """The geometry of one release. Answers are kept: the same question is sent once.

    ``moot`` counts the questions that cannot come up in the release. ``config`` is what is being judged.
    """

    def __init__(self, process: Answers) -> None:
        self.process = process
        self.moot: Counter[str] = Counter()
        self.config: Config | None = None
        self._known: dict[str, Mapping[str, Any]] = {}
        self._layouts: dict[tuple[int, int, int, str], tuple[Mapping[str, Any], bool]] = {}
        self._originals: dict[tuple[ModuleType, str], Any] = {}
        self._planted: dict[tuple[ModuleType, str], Any] = {}
        self._lifts = 0
        self._parts: dict[str, Mapping[str, Any]] = {}

    # --- questions --------------------------------------------------------------------------------------------

    def ask(self, asked: Mapping[str, Any], part: str) -> Mapping[str, Any]:
        """Return one part of the geometry of a header; ``refused`` or ``lacks`` in it says that there is none."""
        question = json.dumps({**asked, "parts": [part]}, sort_keys=True)
        if question not in self._known:
            with self._lifted():
                self._known[question] = self.process.geometry({**asked, "parts": [part]})[part]
        return self._known[question]

    def configure(self, groups: tuple[Group, ...], **settings: Any) -> Config:
        """Resolve a configuration and put the release's sizes into it, without its rows: nobody can read those.

        Laws call it for variants of what they judge. Raises ConfigError where the release refuses it or has nothing like it.
        """
        try:
            return self._configured(groups, settings, rows=False)
        except NotThere as error:
            self.moot[error.what] += 1
            raise ConfigError(error.what) from None

    def with_rows(self, groups: tuple[Group, ...], **settings: Any) -> Config:
        """Resolve a configuration and put the release's sizes and the capacity of its rows into it.

        Raises ConfigError where the release refuses it, NotThere where it has nothing like it.
        """
        return self._configured(groups, settings, rows=True)

    def _configured(self, groups: tuple[Group, ...], settings: dict[str, Any], *, rows: bool) -> Config:
        with self._lifted():
            model, refusal = _resolved(groups, settings)
        unit = settings.get("hash_block_size")
        try:
            asked = header(model, unit)
        except Inexpressible as error:
            raise NotThere(str(error)) from None
        sizes = self.ask(asked, "sizes")
        if "lacks" in sizes:
            raise NotThere(str(sizes["lacks"]))
        if "refused" in sizes:
            raise ConfigError(str(sizes["refused"]))
        del refusal  # what the model refuses and the release accepts is for the laws to judge
        found: Mapping[str, Any] = {"lacks": "not asked"}
        if rows:
            found = self.ask(asked, "rows")
            if "lacks" in found and model.append_expansion > 1:
                # a release whose kernels see the manager's blocks has no such setting
                model = evolve(model, append_expansion=1)
                found = self.ask(header(model, unit), "rows")
        return evolve(
            model,
            sizes=tuple(sizes["group_block_sizes"]),
            scheduler_block_size=sizes["scheduler_block_size"],
            hash_block_size=sizes["hash_block_size"],
            fine_grained=sizes["fine_grained_hits"],
            alignment=sizes["alignment"],
            row_capacity=tuple(found["capacity"]) if "capacity" in found else _hidden(f"rows: {_why(found)}"),
        )

    def _header(self, config: Config) -> dict[str, Any]:
        several = len(config.groups) > 1 and (config.caching or bool(config.children))
        return header(config, config.hash_block_size if several else None)

    # --- layouts: DS-1, DS-2, DS-3 ----------------------------------------------------------------------------

    def _layout(self, size: int, sharded: bool, ranks: int, run: int, part: str) -> tuple[Mapping[str, Any], int] | None:
        """Return a part of the geometry of two groups of a layout and which of them is asked for; None: moot."""
        key = (size, ranks, run, part)
        if key not in self._layouts:
            self._layouts[key] = self._asked_layout(*key)
        found, both = self._layouts[key]
        if sharded or both:
            return found, 0 if sharded else 1
        self.moot[f"{part} of a replicated attention group"] += 1
        return None

    def _asked_layout(self, size: int, ranks: int, run: int, part: str) -> tuple[Mapping[str, Any], bool]:
        """Ask about a sharded and a replicated group; tell, too, whether the answer concerns the replicated one.

        That is attention where the release has it, else a Mamba group: its state is replicated, but it holds no positions.
        """
        full = Group("full_attention", size, True)
        for other in (Group("full_attention", size, False), Group("mamba_align", size)):
            with self._lifted():
                model = configs.configure(
                    (full, other), dcp_size=ranks, interleave=run, max_model_len=min(2 * size * ranks + 1, LAYOUT_TOKENS)
                )
            found = self.ask(header(model, None), part)
            if "lacks" not in found and "refused" not in found:
                return found, other.kind == "full_attention" or part not in ("slots", "lazy")
        raise NotShown(f"{part}: {_why(found)}")

    def effective_block_size(self, size: int, sharded: bool, ranks: int) -> int:
        """E of a group, from the cache manager."""
        found = self._layout(size, sharded, ranks, 1, "sizes")
        if found is None:
            return int(self._original(geometry, "effective_block_size")(size, sharded, ranks))
        return int(found[0]["group_block_sizes"][found[1]])

    def tokens_per_block(self, size: int, sharded: bool, ranks: int) -> int:
        """Tokens of an offloaded block, from the native connector."""
        found = self._layout(size, sharded, ranks, 1, "native1")
        if found is None:
            return int(self._original(reachability, "tokens_per_block")(size, sharded, ranks))
        return int(found[0]["groups"][found[1]]["tokens_per_block"])

    def lazy_span(self, size: int, sharded: bool, ranks: int) -> int:
        """Tokens that the lazy host tier counts for a block."""
        found = self._layout(size, sharded, ranks, 1, "lazy")
        if found is None:
            return int(self._original(reachability, "lazy_span")(size, sharded, ranks))
        return int(found[0]["spans"][found[1]])

    def _slots(self, position: int, size: int, sharded: bool, ranks: int, run: int) -> list[int] | None:
        """Return the slot of a position on each rank, where a row's entries are 1, 2, 3, ...; None: moot."""
        found = self._layout(size, sharded, ranks, run, "slots")
        if found is None:
            return None
        return [rank[found[1]][position] for rank in found[0]["ranks"]]

    def owns(self, position: int, rank: int, size: int, sharded: bool, ranks: int, run: int) -> bool:
        """Whether a rank writes a position."""
        found = self._slots(position, size, sharded, ranks, run)
        if found is None:
            return bool(self._original(geometry, "owns")(position, rank, size, sharded, ranks, run))
        return found[rank] != geometry.PAD_SLOT

    def slot_mapping(
        self, position: int, rank: int, block: int, *, block_size: int, sharded: bool, dcp_size: int, interleave: int
    ) -> int:
        """The slot of a position on a rank; the table's entries are 1, 2, 3, ..., whatever block is named."""
        found = self._slots(position, block_size, sharded, dcp_size, interleave)
        if found is None:
            ask = self._original(geometry, "slot_mapping")
            layout = {"block_size": block_size, "sharded": sharded, "dcp_size": dcp_size, "interleave": interleave}
            return int(ask(position, rank, block, **layout))
        return found[rank]

    def owner_rank(self, position: int, size: int, ranks: int, run: int) -> int:
        """The rank that writes a position of a sharded group, -1 if none does."""
        found = self._slots(position, size, True, ranks, run) or []
        return next((rank for rank, slot in enumerate(found) if slot != geometry.PAD_SLOT), -1)

    def block_column(self, position: int, size: int, sharded: bool, ranks: int) -> int:
        """The column of the entry in which a position's slot lies, with runs of one token."""
        return self._slot(position, size, sharded, ranks, 1) // size - 1

    def block_offset(self, position: int, size: int, sharded: bool, ranks: int, run: int) -> int:
        """The place of a position's slot in its block."""
        return self._slot(position, size, sharded, ranks, run) % size

    def _slot(self, position: int, size: int, sharded: bool, ranks: int, run: int) -> int:
        found = self._slots(position, size, sharded, ranks, run) or []
        return next((slot for slot in found if slot != geometry.PAD_SLOT), geometry.PAD_SLOT)

    def local_length(self, tokens: int, rank: int, ranks: int, run: int) -> int:
        """How many of the first tokens of a sharded group a rank holds, as the attention backends are told (DS-4)."""
        found = self._layout(run, True, ranks, run, "lengths")
        assert found is not None
        return int(found[0]["tokens"][tokens][rank])

    # --- native connector: DS-6 -------------------------------------------------------------------------------

    def _of_the_judged(self, part: str) -> Mapping[str, Any]:
        """Return a part of the geometry of what is being judged."""
        assert self.config is not None
        if part not in self._parts:
            self._parts[part] = self.ask(self._header(self.config), part)
        return self._parts[part]

    def _native(self, blocks: int) -> Mapping[str, Any]:
        found = self._of_the_judged(f"native{blocks}")
        if "lacks" in found or "refused" in found:
            raise NotThere(f"native connector: {_why(found)}")
        return found

    def resolve(self, config: Config, *, blocks_per_chunk: int | None = None, chunk_size: int | None = None) -> Native:
        """Return the native connector's geometry. Raises NotShown where the release has none for the configuration."""
        del config, chunk_size
        found = self._native(blocks_per_chunk or 1)
        groups = tuple(
            Chunked(one["group"], one["tokens_per_block"], one["tokens_per_chunk"], one["hashes_per_chunk"], one["window"])
            for one in found["groups"]
        )
        alignment = found["alignment"] if "alignment" in found else cast("int", Hidden("alignment of the native connector"))
        return Native(groups, found["blocks_per_chunk"], alignment, found["partial_tails"])

    def _chunked(self, blocks: int, chunked: Chunked) -> Mapping[str, Any]:
        found: Mapping[str, Any] = next(one for one in self._native(blocks)["groups"] if one["group"] == chunked.group)
        return found

    def chunk_key(self, nodes: tuple[int, ...], chunked: Chunked, chunk: int) -> tuple[int, int]:
        """Return the key of a chunk, (prefix node, group), from the keys that the release makes for a request."""
        found = self._chunked(chunked.chunk_tokens // chunked.block_tokens, chunked)
        index, group = found["keys"][chunk]
        return nodes[index], group

    def storable_chunks(self, config: Config, geometry: Native, chunked: Chunked, tokens: int) -> int:
        """Return the chunks that the release stores of the first tokens."""
        del config
        return int(self._chunked(geometry.blocks_per_chunk, chunked)["counts"][tokens])

    def accepts_handoff(self, chunked: Chunked, block: int, boundary: int, limit: int) -> bool:
        """Tell whether the release stores a state handed over at a boundary. A release without handoffs: the model's answer."""
        found = self._of_the_judged(f"handoffs{chunked.chunk_tokens // chunked.block_tokens}")
        if "lacks" in found:
            self.moot[str(found["lacks"])] += 1
            return bool(self._original(native, "accepts_handoff")(chunked, block, boundary, limit))
        one = next((one for one in found.get("groups", ()) if one["group"] == chunked.group and one["limit"] == limit), None)
        if one is None:
            raise NotShown(f"handoffs: {_why(found)}")
        return boundary in one["stored"][str(block)]

    # --- the seam ---------------------------------------------------------------------------------------------

    @contextmanager
    def answering(self, config: Config, *, strict: bool) -> Iterator[None]:
        """Let the release answer while a law judges a configuration.

        ``strict``: what is not asked raises NotShown; otherwise the model answers it, so that what is found is the release's.
        """
        asked: dict[tuple[ModuleType, str], Callable[..., Any]] = {
            (configs, "configure"): self.configure,
            (geometry, "effective_block_size"): self.effective_block_size,
            (geometry, "owns"): self.owns,
            (geometry, "slot_mapping"): self.slot_mapping,
            (geometry, "owner_rank"): self.owner_rank,
            (geometry, "block_column"): self.block_column,
            (geometry, "block_offset"): self.block_offset,
            (geometry, "local_length"): self.local_length,
            (reachability, "tokens_per_block"): self.tokens_per_block,
            (reachability, "lazy_span"): self.lazy_span,
            (native, "resolve"): self.resolve,
            (native, "chunk_key"): self.chunk_key,
            (native, "storable_chunks"): self.storable_chunks,
            (native, "accepts_handoff"): self.accepts_handoff,
        }
        if strict:
            asked |= {(module, name): _not_asked(name) for module, name in NOT_ASKED}
        self._originals = {(module, name): getattr(module, name) for module, name in asked}
        self._planted, self.config, self._parts = dict(asked), config, {}
        self._put(self._planted)
        try:
            yield
        finally:
            self._put(self._originals)
            self._originals, self._planted, self.config = {}, {}, None

    def _original(self, module: ModuleType, name: str) -> Callable[..., Any]:
        found: Callable[..., Any] = self._originals[(module, name)]

        def call(*arguments: Any, **named: Any) -> Any:
            with self._lifted():
                return found(*arguments, **named)

        return call

    @contextmanager
    def _lifted(self) -> Iterator[None]:
        """Let the model answer for a moment."""
        self._lifts += 1
        self._put(self._originals)
        try:
            yield
        finally:
            self._lifts -= 1
            if not self._lifts:
                self._put(self._planted)

    @staticmethod
    def _put(functions: Mapping[tuple[ModuleType, str], Any]) -> None:
        for (module, name), function in functions.items():
            setattr(module, name, function)


def _resolved(groups: tuple[Group, ...], settings: dict[str, Any]) -> tuple[Config, ConfigError | None]:
    """Return the model's configuration and why it refuses the unit asked for, if it does: then that of its own unit."""
    try:
        return configs.configure(groups, **settings), None
    except ConfigError as error:
        if settings.get("hash_block_size") is None:
            raise
        alone: dict[str, Any] = {**settings, "hash_block_size": None}
        return configs.configure(groups, **alone), error


def _why(part: Mapping[str, Any]) -> str:
    return str(part.get("lacks") or part.get("refused") or "another limit").partition("\n")[0]


def _hidden(what: str) -> tuple[int, ...]:
    """Return row capacities that nobody can read."""
    return cast("tuple[int, ...]", Hidden(what))


def _not_asked(name: str) -> Callable[..., NoReturn]:
    def hidden(*arguments: object, **named: object) -> NoReturn:
        raise NotShown(name)

    return hidden
