"""Arguments and results of the calls that a scheduler makes, as `calls` has them (docs/trace-format.md, section 5)."""

from __future__ import annotations

from typing import Any

import dump


def lists(groups: Any) -> list[list[int]]:
    """Block ids per group as lists."""
    return [list(group) for group in groups]


def ids(groups: Any) -> list[list[int]]:
    """The ids of blocks, per group."""
    return [[block.block_id for block in group] for group in groups]


class Calls:
    """What is written of each call. The parameters are those of the engine's methods, so that keywords find their places."""

    def __init__(self, reader: dump.Reader) -> None:
        self.reader = reader

    def one_request(self, request: Any, *_: Any, **__: Any) -> dict[str, Any]:
        """Calls about one request and nothing else."""
        # it may be gone, with its last keys registered, when a state is read
        self.reader.learn_one(request.request_id, request)
        return {"request": request.request_id}

    def found(self, result: Any, *_: Any, **__: Any) -> dict[str, Any]:
        """The result of a lookup."""
        return {"local": result[1], "blocks": ids(result[0].blocks), "junction": result[2]}

    def lookup_external(self, request: Any, num_computed_tokens: int, *_: Any, **__: Any) -> dict[str, Any]:
        """A question to the connector."""
        self.reader.external_from[request.request_id] = num_computed_tokens
        return {"request": request.request_id, "from": num_computed_tokens}

    def answered(self, result: Any, *_: Any, **__: Any) -> dict[str, Any]:
        """The connector's answer. Raises CannotRecord for one that the format has no words for."""
        tokens, loads = result
        if tokens is None:
            raise dump.CannotRecord("a connector does not know yet what it has")
        if loads and self.reader.host is None:
            raise dump.CannotRecord("a connector that is no host tier loads in the background")
        return {"external": tokens, "async": bool(loads)}

    def truncate(self, blocks: Any, num_computed_tokens: int, *_: Any, **__: Any) -> dict[str, Any]:
        """The last lookup result is cut."""
        del blocks
        return {"tokens": num_computed_tokens}

    def clip(
        self,
        request: Any,
        num_new_tokens: int,
        num_new_local_computed_tokens: int = 0,
        num_external_computed_tokens: int = 0,
        *_: Any,
        **__: Any,
    ) -> dict[str, Any]:
        """The chunk clipping rule."""
        start = request.num_computed_tokens + num_new_local_computed_tokens + num_external_computed_tokens
        return {"request": request.request_id, "start": start, "tokens": num_new_tokens}

    def clipped(self, result: Any, *_: Any, **__: Any) -> dict[str, Any]:
        """What the rule leaves."""
        return {"tokens": result}

    def allocate(
        self,
        request: Any,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: Any = None,
        num_lookahead_tokens: int = 0,
        num_external_computed_tokens: int = 0,
        delay_cache_blocks: bool = False,
        num_encoder_tokens: int = 0,
        full_sequence_must_fit: bool = False,
        reserved_blocks: int = 0,
        *_: Any,
        **__: Any,
    ) -> dict[str, Any]:
        """An allocation."""
        del new_computed_blocks, num_encoder_tokens
        return {
            "request": request.request_id,
            "new_tokens": num_new_tokens,
            "local": num_new_computed_tokens,
            "external": num_external_computed_tokens,
            "async_load": bool(delay_cache_blocks),
            "lookahead": num_lookahead_tokens,
            "reserved": reserved_blocks,
            "full_sequence_must_fit": bool(full_sequence_must_fit),
            "before": request.num_computed_tokens + num_new_computed_tokens + num_external_computed_tokens,
        }

    def allocated(
        self,
        result: Any,
        request: Any,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: Any = None,
        num_lookahead_tokens: int = 0,
        num_external_computed_tokens: int = 0,
        *_: Any,
        **__: Any,
    ) -> dict[str, Any]:
        """The result of an allocation: blocks of a table behind the adopted ones, and not new, were taken for external tokens.

        By their places: a block that was found and not adopted, because a window has passed it, may have been taken anew.
        """
        del num_new_tokens, num_new_computed_tokens, num_lookahead_tokens
        if result is None:
            return {"admitted": False, "new_blocks": None, "external_blocks": None}
        new = ids(result.blocks)
        external: list[list[int]] = [[] for _ in new]
        if num_external_computed_tokens:
            adopted = external if new_computed_blocks is None else ids(new_computed_blocks.blocks)
            for group, manager in enumerate(self.reader.managers):
                table = manager.req_to_blocks.get(request.request_id, ())
                behind = table[len(adopted[group]) :]
                external[group] = [block.block_id for block in behind if not block.is_null and block.block_id not in new[group]]
        return {"admitted": True, "new_blocks": new, "external_blocks": external}

    def cache(self, request: Any, num_computed_tokens: int, *_: Any, **__: Any) -> dict[str, Any]:
        """Keys are registered."""
        self.reader.learn_one(request.request_id, request)
        return {"request": request.request_id, "tokens": num_computed_tokens}

    def finish_hook(self, request: Any, block_ids: Any, *_: Any, **__: Any) -> dict[str, Any]:
        """A finished request's tables are offered to the connector: those of all groups, or that of the only one."""
        whole = not block_ids or isinstance(block_ids[0], list | tuple)
        return {"request": request.request_id, "blocks": lists(block_ids if whole else (block_ids,))}
