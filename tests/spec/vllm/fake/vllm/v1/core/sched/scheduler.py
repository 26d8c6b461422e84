"""A toy scheduler with the attributes of vLLM's: one group of full attention, no host tier, first come first served.

It is small and wrong in many ways, but its state and its methods are found where the real ones are.
"""

from __future__ import annotations

import enum
import hashlib
import struct
from collections import deque
from types import SimpleNamespace as Bag
from typing import Any


def get_block_hash(key: bytes) -> bytes:
    return key[:-4]


def get_group_id(key: bytes) -> int:
    return int(struct.unpack(">I", key[-4:])[0])


class RequestStatus(enum.IntEnum):
    WAITING = 0
    RUNNING = 1
    PREEMPTED = 2
    FINISHED_STOPPED = 3
    FINISHED_ABORTED = 4


class FullAttentionSpec:
    def __init__(self, block_size: int) -> None:
        self.block_size = block_size


class Block:
    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_cnt = 0
        self.block_hash: bytes | None = None
        self.block_hash_num_tokens: int | None = None
        self.is_null = block_id == 0


class Request:
    def __init__(self, name: str, tokens: list[int], max_tokens: int, unit: int, **more: Any) -> None:
        self.request_id = name
        self.prompt_token_ids = list(tokens)
        self.all_token_ids = list(tokens)
        self.max_tokens = max_tokens
        self.priority = 0
        self.status = RequestStatus.WAITING
        self.num_computed_tokens = 0
        self.num_in_flight_tokens = 0
        self.num_preemptions = 0
        self.sampling_params = object()
        self.unit = unit
        self.__dict__.update(more)

    @property
    def num_tokens(self) -> int:
        return len(self.all_token_ids)

    @property
    def block_hashes(self) -> list[bytes]:
        """A chain in which every hash covers the whole prefix."""
        ends = range(self.unit, self.num_tokens + 1, self.unit)
        return [hashlib.md5(repr(self.all_token_ids[:end]).encode()).digest() for end in ends]

    def is_finished(self) -> bool:
        return self.status >= RequestStatus.FINISHED_STOPPED


class Pool:
    def __init__(self, blocks: int, unit: int) -> None:
        self.num_gpu_blocks = blocks
        self.hash_block_size = unit
        self.blocks = [Block(number) for number in range(blocks)]
        self.null_block = self.blocks[0]
        self.queue = deque(self.blocks[1:])
        self.free_block_queue = Bag(get_all_free_blocks=lambda: list(self.queue))
        self.cached_block_hash_to_block = Bag(_cache={})
        self.kv_event_queue: list[Any] = []


class KVCache:
    def __init__(self, blocks: int, size: int) -> None:
        self.block_pool = Pool(blocks, size)
        self.size = size
        self.enable_caching = True
        group = Bag(
            block_size=size,
            block_pool=self.block_pool,
            req_to_blocks={},
            num_cached_block={},
            _pending_cow_copies=[],
        )
        self.group = group
        self.coordinator = Bag(single_type_managers=[group], enable_partial_hash_hits=False, retention_interval=None)
        self.kv_cache_config = Bag(kv_cache_groups=[Bag(kv_cache_spec=FullAttentionSpec(size))])

    def get_computed_blocks(self, request: Request) -> tuple[Any, int, int]:
        found = []
        for value in request.block_hashes[: (request.num_tokens - 1) // self.size]:
            block = self.block_pool.cached_block_hash_to_block._cache.get(value + bytes(4))
            if block is None:
                break
            found.append(block)
        return Bag(blocks=(found,)), len(found) * self.size, 0

    def allocate_slots(
        self,
        request: Request,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: Any = None,
        num_lookahead_tokens: int = 0,
    ) -> Any:
        table = self.group.req_to_blocks.setdefault(request.request_id, [])
        queue = self.block_pool.queue
        hits = [] if new_computed_blocks is None else list(new_computed_blocks.blocks[0])
        end = request.num_computed_tokens + num_new_computed_tokens + num_new_tokens
        wanted = -(-end // self.size) - len(table) - len(hits)
        if wanted > len([block for block in queue if block not in hits]):
            return None
        for block in hits:
            if not block.ref_cnt:
                queue.remove(block)
            block.ref_cnt += 1
        new = [queue.popleft() for _ in range(wanted)]
        for block in new:
            if block.block_hash is not None:
                del self.block_pool.cached_block_hash_to_block._cache[block.block_hash]
                block.block_hash = block.block_hash_num_tokens = None
            block.ref_cnt = 1
        table += hits + new
        self.register(request, min(end, request.num_tokens))
        return Bag(blocks=(new,))

    def register(self, request: Request, tokens: int) -> None:
        """Give keys to full blocks."""
        cache = self.block_pool.cached_block_hash_to_block._cache
        table = self.group.req_to_blocks[request.request_id]
        for number, value in enumerate(request.block_hashes[: tokens // self.size]):
            if table[number].block_hash is None and value + bytes(4) not in cache:
                table[number].block_hash = value + bytes(4)
                table[number].block_hash_num_tokens = (number + 1) * self.size
                cache[value + bytes(4)] = table[number]
        self.group.num_cached_block[request.request_id] = tokens // self.size

    def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
        self.register(request, num_computed_tokens)

    def free(self, request: Request) -> None:
        for block in reversed(self.group.req_to_blocks.pop(request.request_id, [])):
            block.ref_cnt -= 1
            if not block.ref_cnt:
                self.block_pool.queue.append(block)
        self.group.num_cached_block.pop(request.request_id, None)

    def take_kv_cache_block_copies(self) -> tuple[list[Any], list[Any]]:
        return [], []

    def take_events(self) -> list[Any]:
        return []


class Scheduler:
    def __init__(self, blocks: int = 8, size: int = 2, budget: int = 6, running: int = 4, **settings: Any) -> None:
        self.kv_cache_manager = KVCache(blocks, size)
        self.vllm_config = Bag(parallel_config=Bag(decode_context_parallel_size=1), max_concurrent_batches=1)
        self.connector = None
        self.requests: dict[str, Request] = {}
        self.waiting: deque[Request] = deque()
        self.kv_holding_waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.deferred_frees: deque[Any] = deque()
        self.finished: set[str] = set()
        self.preempted: set[str] = set()
        self.policy = Bag(value="fcfs")
        self.cache_config = Bag(block_size=size)
        self.scheduler_config = Bag(long_prefill_token_threshold=0)
        self.max_model_len, self.max_num_scheduled_tokens, self.max_num_running_reqs = 64, budget, running
        self.use_eagle = self.use_v2_model_runner = self.scheduler_reserve_full_isl = False
        self.num_spec_tokens = self.num_lookahead_tokens = 0
        self.__dict__.update(settings)

    def add_request(self, request: Request) -> None:
        self.requests[request.request_id] = request
        self.waiting.append(request)

    def schedule(self) -> Any:
        budget, scheduled, new, kept = self.max_num_scheduled_tokens, {}, [], []
        for request in list(self.running):
            if request not in self.running:
                continue
            amount = min(request.num_tokens - request.num_computed_tokens, budget)
            if amount <= 0:
                continue
            blocks = self.kv_cache_manager.allocate_slots(request, amount, num_lookahead_tokens=0)
            while blocks is None:
                victim = self.running.pop()
                self._preempt_request(victim, 0.0)
                if victim is request:
                    break
                blocks = self.kv_cache_manager.allocate_slots(request, amount, num_lookahead_tokens=0)
            if blocks is not None:
                scheduled[request.request_id] = amount
                budget -= amount
                kept.append((request, blocks))
        while self.waiting and budget and len(self.running) < self.max_num_running_reqs and not self.preempted:
            request = self.waiting[0]
            hit, local, _ = self.kv_cache_manager.get_computed_blocks(request)
            amount = min(request.num_tokens - local, budget)
            blocks = self.kv_cache_manager.allocate_slots(request, amount, local, hit)
            if blocks is None:
                break
            self.running.append(self.waiting.popleft())
            request.status, request.num_computed_tokens = RequestStatus.RUNNING, local
            scheduled[request.request_id] = amount
            budget -= amount
            new.append(request)
        self.kv_cache_manager.take_kv_cache_block_copies()
        output = self.output(scheduled, new, kept)
        for name, amount in scheduled.items():
            self.requests[name].num_computed_tokens += amount
            self.requests[name].num_in_flight_tokens += amount
        self.finished, self.preempted = set(), set()
        return output

    def output(self, scheduled: dict[str, int], new: list[Request], kept: list[tuple[Request, Any]]) -> Any:
        tables = self.kv_cache_manager.group.req_to_blocks
        fresh = [request for request in new if not request.num_preemptions]
        again = [(request, Bag(blocks=(tables[request.request_id],))) for request in new if request.num_preemptions]
        rows = [*kept, *again]
        return Bag(
            num_scheduled_tokens=scheduled,
            total_num_scheduled_tokens=sum(scheduled.values()),
            scheduled_spec_decode_tokens={},
            scheduled_new_reqs=[
                Bag(
                    req_id=request.request_id,
                    num_computed_tokens=request.num_computed_tokens,
                    block_ids=([block.block_id for block in tables[request.request_id]],),
                )
                for request in fresh
            ],
            scheduled_cached_reqs=Bag(
                req_ids=[request.request_id for request, _ in rows],
                resumed_req_ids={request.request_id for request, _ in again},
                num_computed_tokens=[request.num_computed_tokens for request, _ in rows],
                new_block_ids=[
                    ([block.block_id for block in blocks.blocks[0]],) if blocks.blocks[0] else None for _, blocks in rows
                ],
            ),
            preempted_req_ids=self.preempted,
            finished_req_ids=self.finished,
            kv_cache_block_copies=None,
            new_block_ids_to_zero=None,
            kv_connector_metadata=None,
        )

    def _preempt_request(self, request: Request, timestamp: float) -> None:
        self.kv_cache_manager.free(request)
        request.status, request.num_computed_tokens = RequestStatus.PREEMPTED, 0
        request.num_preemptions += 1
        self.waiting.appendleft(request)
        self.preempted.add(request.request_id)

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> dict[int, Any]:
        for name, amount in scheduler_output.num_scheduled_tokens.items():
            request = self.requests.get(name)
            if request is None:
                continue
            request.num_in_flight_tokens -= amount
            tokens = model_runner_output.sampled_token_ids[model_runner_output.req_id_to_index[name]]
            request.all_token_ids += tokens
            if tokens and self.num_spec_tokens:
                self.kv_cache_manager.cache_blocks(request, request.num_tokens)
            if request.num_tokens - len(request.prompt_token_ids) >= request.max_tokens:
                request.status = RequestStatus.FINISHED_STOPPED
                self.running.remove(request)
                self._free_request(request)
        self.kv_cache_manager.take_events()
        return {}

    def finish_requests(self, request_ids: Any, finished_status: RequestStatus) -> list[Request]:
        names = [request_ids] if isinstance(request_ids, str) else list(self.requests if request_ids is None else request_ids)
        found = [self.requests[name] for name in names if name in self.requests]
        for request in found:
            for queue in (self.running, self.waiting):
                if request in queue:
                    queue.remove(request)
        for request in found:
            request.status = finished_status
            self._free_request(request)
        return found

    def _free_request(self, request: Request) -> None:
        self.finished.add(request.request_id)
        self.kv_cache_manager.free(request)
        del self.requests[request.request_id]

    def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        while reset_running_requests and self.running:
            self._preempt_request(self.running.pop(), 0.0)
        if any(block.ref_cnt for block in self.kv_cache_manager.block_pool.blocks):
            return False
        for block in self.kv_cache_manager.block_pool.blocks:
            block.block_hash = block.block_hash_num_tokens = None
        self.kv_cache_manager.block_pool.cached_block_hash_to_block._cache.clear()
        return True

    def shutdown(self) -> None:
        """Nothing to do."""


class AsyncScheduler(Scheduler):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.settings_came_late = True
