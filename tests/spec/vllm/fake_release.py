"""A release that answers with the model's own functions, and the ways in which real ones answered otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvproof.core import config as configs
from kvproof.core import geometry, native
from kvproof.core.config import Config, Group, Offload
from kvproof.core.errors import ConfigError
from kvproof.spec.vllm.process import ReleaseLacks

KINDS = {
    "full_attention": "full_attention",
    "sliding_window": "sliding_window",
    "chunked_local": "chunked_local",
    "mamba": "mamba_align",
}
TOKENS = 320


def config_of(header: Mapping[str, Any]) -> Config:
    """Resolve a header by the model."""
    groups = tuple(
        Group(
            KINDS[one["kind"]],
            one["block_size"],
            one["dcp_sharded"],
            window=one.get("window"),
            speculative_blocks=one.get("num_speculative_blocks", 0),
            draft=one["is_eagle_group"],
        )
        for one in header["groups"]
    )
    return configs.configure(
        groups,
        dcp_size=header["dcp_world_size"],
        interleave=header["interleave"],
        hash_block_size=header["hash_block_size"],
        max_model_len=header["max_model_len"],
        num_blocks=header["num_device_blocks"],
        max_running=header["max_running"],
        caching=header["caching"],
        connectors=tuple(one["divergent"] for one in header["connectors"]),
        offload=None if header["host"] is None else Offload(header["host"]["mode"], header["host"]["num_blocks"]),
        append_expansion=header["append_expansion"],
        use_eagle=header["use_eagle"],
    )


class FakeRelease:
    """Answers geometry and rows by the model; a subclass overrides what a release had wrong."""

    replicated = True
    hands_over = True
    splits = True

    def geometry(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        (part,) = config["parts"]
        groups = config["groups"]
        if config["dcp_world_size"] > 1 and not self.replicated:
            if any(not one["dcp_sharded"] and one["kind"] != "mamba" for one in groups):
                return {part: {"lacks": "replicated attention"}}
        if config["append_expansion"] > 1 and not self.splits:
            if part == "rows":
                return {part: {"lacks": "split blocks"}}
            config = {**config, "append_expansion": 1}
        try:
            resolved = config_of(config)
        except ConfigError as error:
            return {part: {"refused": f"ValueError: {error}"}}
        name = part.rstrip("123")
        found: Mapping[str, Any] = getattr(self, name)(resolved, *(int(digit) for digit in part[len(name) :]))
        return {part: found}

    def sizes(self, config: Config) -> dict[str, Any]:
        return {
            "scheduler_block_size": config.scheduler_block_size,
            "hash_block_size": config.hash_block_size,
            "group_block_sizes": list(config.sizes),
            "fine_grained_hits": config.fine_grained,
            "alignment": config.alignment,
        }

    def capacity(self, config: Config) -> list[int]:
        return list(config.row_capacity)

    def rows(self, config: Any, appends: Sequence[Any] = ()) -> Any:
        if isinstance(config, Config):
            return {"capacity": self.capacity(config)}
        if config["append_expansion"] > 1 and not self.splits:
            raise ReleaseLacks(version="1", doing="rows", lacking="split blocks")
        return self.appended(config_of(config), appends)

    def appended(self, config: Config, appends: Sequence[Any]) -> list[Mapping[str, Any]]:
        widths, factor = self.capacity(config), config.append_expansion
        flat: list[dict[tuple[int, int], int]] = [{} for _ in widths]
        counts = [[0] * config.max_running for _ in widths]
        found: list[Mapping[str, Any]] = []
        for row, blocks in appends:
            error = self.write(
                widths, counts, flat, row, [[b * factor + j for b in ids for j in range(factor)] for ids in blocks]
            )
            rows = [
                [
                    [flat[g].get(divmod(row * width + i, width), 0) for i in range(counts[g][row])]
                    for row in range(config.max_running)
                ]
                for g, width in enumerate(widths)
            ]
            found.append({"rows": rows, **({"error": error} if error else {})})
        return found

    def write(self, widths: Any, counts: Any, flat: Any, row: int, blocks: Any) -> str:
        for g, ids in enumerate(blocks):
            if counts[g][row] + len(ids) > widths[g]:
                return f"group {g} exceeds row capacity"
            self.put(widths[g], counts[g], flat[g], row, ids)
        return ""

    def put(self, width: int, counts: Any, flat: Any, row: int, ids: Sequence[int]) -> None:
        for i, block in enumerate(ids, start=counts[row]):
            flat[divmod(row * width + i, width)] = block
        counts[row] += len(ids)

    def slots(self, config: Config) -> dict[str, Any]:
        def slot(position: int, rank: int, group: Group) -> int:
            sharded = bool(group.sharded)
            column = geometry.block_column(position, group.block_size, sharded, config.dcp_size)
            return geometry.slot_mapping(
                position,
                rank,
                column + 1,
                block_size=group.block_size,
                sharded=sharded,
                dcp_size=config.dcp_size,
                interleave=config.interleave,
            )

        tokens = range(min(config.max_model_len, TOKENS))
        return {
            "ranks": [[[slot(n, rank, group) for n in tokens] for group in config.groups] for rank in range(config.dcp_size)]
        }

    def lengths(self, config: Config) -> dict[str, Any]:
        ranks = range(config.dcp_size)
        return {
            "tokens": [[geometry.local_length(n, r, config.dcp_size, config.interleave) for r in ranks] for n in range(TOKENS)]
        }

    def lazy(self, config: Config) -> dict[str, Any]:
        return {"spans": list(config.sizes)}

    def divergent(self, config: Config) -> dict[str, Any]:
        return {"together": bool(config.children) and all(config.children)}

    def native(self, config: Config, blocks: int) -> dict[str, Any]:
        found = native.resolve(config, blocks_per_chunk=blocks)
        groups = [
            {
                "group": one.group,
                "tokens_per_block": one.block_tokens,
                "tokens_per_chunk": one.chunk_tokens,
                "hashes_per_chunk": one.hashes,
                "window": one.window,
                "keys": [[one.hashes * (chunk + 1) - 1, one.group] for chunk in range(4)],
                "counts": [native.storable_chunks(config, found, one, n) for n in range(201)],
            }
            for one in found.groups
        ]
        return {
            "groups": groups,
            "blocks_per_chunk": blocks,
            "alignment": found.alignment,
            "partial_tails": found.partial_tails,
        }

    def handoffs(self, config: Config, blocks: int) -> dict[str, Any]:
        if not self.hands_over:
            return {"lacks": "handoffs"}
        groups = []
        for one in native.resolve(config, blocks_per_chunk=blocks).groups:
            limit, unit = 2 * one.chunk_tokens + one.chunk_tokens // 2, config.hash_block_size
            ends = [n for n in range(unit, 3 * one.chunk_tokens + 1, unit) if native.accepts_handoff(one, 1, n, limit)]
            groups.append({"group": one.group, "limit": limit, "stored": {"0": [], "1": ends}})
        return {"groups": groups}
