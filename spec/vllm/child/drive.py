"""Builds a release's real scheduler from a header configuration and runs a script on it; the workers are simulated here.

Every script entry is total: what does not apply at that moment is skipped. The driver decides nothing that the scheduler does.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dump
from configuration import (
    Header,
    Unsupported,
    accepted,
    check_rules,
    check_sizes,
    kv_cache_config,
    module,
    set_environment,
    vllm_config,
)

SETTLE_ROUNDS = 200


class NoGrammar:
    """In the place of the manager of structured output: no request has a grammar."""

    def should_advance(self, *args: Any, **kwargs: Any) -> bool:
        """Return false: there is no grammar to advance."""
        return False

    def validate_tokens(self, request: Any, tokens: list[int]) -> list[int]:
        """Return the drafts unchanged."""
        return tokens

    def accept_tokens(self, *args: Any, **kwargs: Any) -> bool:
        """Return true: any token will do."""
        return True

    def grammar_init(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to prepare."""

    def grammar_bitmask(self, *args: Any, **kwargs: Any) -> None:
        """Return None: no mask."""

    def clear_backend(self) -> None:
        """Nothing to release."""


class TextOnly:
    """In the place of the registry of multi-modal models: none is one."""

    def supports_multimodal_inputs(self, model: Any) -> bool:
        """Return false."""
        return False


def build(config: Header) -> Any:
    """Return the release's scheduler for a header configuration.

    Raises:
        Unsupported: the release has no such thing, or refuses the configuration in its own words.
    """
    try:
        return _build(config)
    except (AssertionError, NotImplementedError, ValueError) as error:
        if not str(error):
            raise
        raise Unsupported(f"this configuration; it says: {error}") from error


def _build(config: Header) -> Any:
    set_environment(config)
    layout, whole = kv_cache_config(config), vllm_config(config)
    check_rules(whole)
    check_sizes(config, layout, whole)
    utils = module("v1.core.kv_cache_utils")
    utils.init_none_hash(hash_function())
    kind = scheduler_class(config)
    values = {
        "vllm_config": whole,
        "kv_cache_config": layout,
        "structured_output_manager": NoGrammar(),
        "block_size": config["scheduler_block_size"],
        "hash_block_size": config["hash_block_size"],
        "mm_registry": TextOnly(),
        "include_finished_set": False,
        "log_stats": False,
    }
    # a derived scheduler passes everything on
    scheduler = kind(**accepted(module("v1.core.sched.scheduler").Scheduler, **values))
    sizes = [manager.block_size for manager in scheduler.kv_cache_manager.coordinator.single_type_managers]
    if sizes != config["group_block_sizes"]:
        raise Unsupported(f"group block sizes {config['group_block_sizes']} (it derives {sizes})")
    # some releases refuse a configuration only when they first look for a prefix; this changes nothing
    scheduler.kv_cache_manager.get_computed_blocks(request_of(config, "probe", [1] * (config["scheduler_block_size"] + 1)))
    return scheduler


def request_of(config: Header, name: str, tokens: list[int], max_tokens: int = 1, priority: int = 0, arrival: int = 0) -> Any:
    """Return a request of the release that stops at ``max_tokens`` and nothing else."""
    kind = module("v1.request").Request
    hasher = module("v1.core.kv_cache_utils").get_request_block_hasher(config["hash_block_size"], hash_function())
    values = {
        "request_id": name,
        "prompt_token_ids": list(tokens),
        "sampling_params": module("sampling_params").SamplingParams(max_tokens=max_tokens, ignore_eos=True, temperature=0.0),
        "pooling_params": None,
        "arrival_time": float(arrival),
        "priority": priority,
        "block_hasher": hasher,
    }
    return kind(**accepted(kind, **values))


def scheduler_class(config: Header) -> Any:
    """Return the class of the scheduler: the plain one, also where steps overlap, as in the shipped recordings.

    The header's ``scheduler.asynchronous`` asks for the class that plans on tokens that are not sampled yet.
    Raises Unsupported.
    """
    plain = module("v1.core.sched.scheduler").Scheduler
    wanted = config["scheduler"]
    if wanted["concurrent_batches"] > 1:
        if wanted.get("asynchronous"):
            return module("v1.core.sched.async_scheduler").AsyncScheduler
        if config["num_draft_tokens"] and not hasattr(plain, CLAMPS):
            raise Unsupported("drafts while a step is planned ahead: its plain scheduler would plan less than no tokens")
    return plain


CLAMPS = "_reserve_prefill_lookahead"
"""The method of a plain scheduler that keeps a planned number of tokens from being negative."""


def hash_function() -> Any:
    """Return the hash of the key chain: a cryptographic one whose result does not depend on the process."""
    hashing = module("utils.hashing")
    return getattr(hashing, "sha256_cbor", None) or hashing.sha256


class Worker:
    """The workers of one engine: they take a step's transfers and report them later, first in, first out per direction.

    ``stores`` and ``loads`` are under way, each with the number of the step that it came with.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.stores: deque[tuple[int, int]] = deque()
        self.loads: deque[tuple[str, int]] = deque()
        self.acks: dict[int, int] = {}

    def take(self, metadata: Any, step: int) -> None:
        """Take the transfers of one step."""
        store = getattr(metadata, "store_event", -1)
        if store >= 0:
            self.stores.append((store, step))
        load = getattr(metadata, "load_event", -1)
        if load >= 0:
            self.loads.extend((name, step) for name in metadata.load_event_to_reqs.get(load, ()))

    def stored(self, acks: int) -> Any:
        """Return the report of ``acks`` workers, at most of those still to come, about the oldest store."""
        event = self.stores[0][0]
        count = min(max(acks, 1), self.workers - self.acks.get(event, 0))
        self.acks[event] = self.acks.get(event, 0) + count
        if self.acks[event] == self.workers:
            self.stores.popleft()
            del self.acks[event]
        metadata = module("v1.simple_kv_offload.metadata").SimpleCPUOffloadWorkerMetadata(completed_store_events={event: count})
        return module("v1.outputs").KVConnectorOutput(kv_connector_worker_meta=metadata)

    def loaded(self) -> Any:
        """Return the report about the oldest load."""
        return module("v1.outputs").KVConnectorOutput(finished_recving={self.loads.popleft()[0]})


class Step:
    """One planned step: the scheduler's output, and which requests will sample."""

    def __init__(self, output: Any, samples: Mapping[str, bool]) -> None:
        self.output = output
        self.samples = samples


class Driver:
    """Runs script entries on one scheduler. ``skipped`` counts entries that did not apply, ``steps`` the scheduling passes."""

    def __init__(self, scheduler: Any, config: Header) -> None:
        self.scheduler = scheduler
        self.config = config
        self.asynchronous = dump.plans_on_placeholders(scheduler)
        self.worker = Worker(config["host"]["workers"] if config["host"] else 1)
        self.planned: deque[Step] = deque()
        self.steps = 0
        self.updated = 0
        self.skipped = 0
        self.submitted = 0
        self.rounds = 0

    def run(self, script: Iterable[Sequence[Any]]) -> None:
        """Run all entries of a script."""
        for entry in script:
            self.perform(entry)

    def perform(self, entry: Sequence[Any]) -> bool:
        """Perform one entry; False: it did not apply, and nothing happened. Raises ValueError for an unknown one."""
        operation = getattr(self, f"do_{entry[0]}", None)
        if operation is None:
            raise ValueError(f"unknown script entry {entry[0]!r}")
        done = bool(operation(*entry[1:]))
        self.skipped += not done
        return done

    # ------------------------------------------------------------------ inputs

    def do_submit(self, tokens: list[int], max_tokens: int, priority: int = 0, name: str | None = None) -> bool:
        """Submit a request; one that does not fit into the longest sequence is refused by the front end."""
        named = name if name is not None else f"r{self.submitted}"
        if not tokens or len(tokens) >= self.config["max_model_len"] or named in self.scheduler.requests:
            return False
        self.scheduler.add_request(request_of(self.config, named, tokens, max_tokens, priority, self.submitted))
        self.submitted += 1
        return True

    def do_step(self) -> bool:
        """Plan one step, unless as many are planned as may be."""
        if len(self.planned) >= self.config["scheduler"]["concurrent_batches"]:
            return False
        output = self.scheduler.schedule()
        self.steps += 1
        requests = self.scheduler.requests
        self.planned.append(Step(output, {name: not requests[name].is_prefill_chunk for name in output.num_scheduled_tokens}))
        if output.kv_connector_metadata is not None:
            self.worker.take(output.kv_connector_metadata, self.steps)
        return True

    def do_update(self, sampled: int | Mapping[str, list[int]] = 0, drafts: Mapping[str, list[int]] | None = None) -> bool:
        """Report the output of the oldest planned step: given tokens and next drafts, or ones that a seed chooses."""
        if not self.planned:
            return False
        step = self.planned.popleft()
        self.updated += 1
        seed = None
        if isinstance(sampled, int):
            seed = random.Random(sampled)
            sampled = {name: self.sample(step, name, seed) for name in step.output.num_scheduled_tokens}
        names = list(step.output.num_scheduled_tokens)
        kind = module("v1.outputs").ModelRunnerOutput
        values = {
            "req_ids": names,
            "req_id_to_index": {name: i for i, name in enumerate(names)},
            "sampled_token_ids": [list(sampled.get(name, ())) for name in names],
            "logprobs": None,
            "prompt_logprobs_dict": {},
            "pooler_output": None,
        }
        self.scheduler.update_from_output(step.output, kind(**accepted(kind, **values)))
        if seed is not None:
            drafts = self.draw_drafts(sampled, seed)
        if drafts:
            ids = module("v1.outputs").DraftTokenIds(list(drafts), [list(tokens) for tokens in drafts.values()])
            self.scheduler.update_draft_token_ids(ids)
        return True

    def do_complete_store(self, acks: int = 1, event: int | None = None) -> bool:
        """Let ``acks`` workers report the oldest store: of a step whose output is there, or the one named, at any time."""
        if not self.reportable(self.worker.stores, event):
            return False
        self.report(self.worker.stored(acks))
        return True

    def do_complete_load(self, name: str | None = None) -> bool:
        """Report the oldest load: of a step whose output is there, or the one named, at any time."""
        if not self.reportable(self.worker.loads, name):
            return False
        self.report(self.worker.loaded())
        return True

    def do_abort(self, which: int | str) -> bool:
        """Abort a live request, by name or by its place among the live ones."""
        live = self.live()
        name = which if isinstance(which, str) else live[which % len(live)] if live else ""
        if name not in live:
            return False
        status = module("v1.request").RequestStatus.FINISHED_ABORTED
        self.scheduler.finish_requests(name, status)
        return True

    def do_reset(self, preempt_running: bool, host: bool) -> bool:
        """Forget the prefix cache. Preempting the running requests for it is allowed only where nothing else holds blocks."""
        if preempt_running and not self.only_running_hold():
            return False
        self.scheduler.reset_prefix_cache(bool(preempt_running), bool(host))
        return True

    def do_settle(self) -> bool:
        """Go on until no request is live and no transfer is under way, at most SETTLE_ROUNDS rounds."""
        for _ in range(SETTLE_ROUNDS):
            if not (self.live() or self.planned or self.worker.stores or self.worker.loads or self.scheduler.has_requests()):
                break
            self.rounds += 1
            if self.live() or not self.planned:  # else a further step would always be planned ahead, and none be the last
                self.do_step()
            self.do_update(self.rounds)
            while self.do_complete_store(self.worker.workers):
                pass
            while self.do_complete_load():
                pass
        return True

    # ------------------------------------------------------------------ helpers

    def live(self) -> list[str]:
        """Return the names of the requests that have not finished, in order of submission."""
        return [name for name, request in self.scheduler.requests.items() if not request.is_finished()]

    def reportable(self, running: deque[tuple[Any, int]], named: Any) -> bool:
        """Return whether the oldest of the transfers may be reported now: it is the one named, or its step has run."""
        if not running:
            return False
        what, step = running[0]
        return step <= self.updated if named is None else what == named

    def only_running_hold(self) -> bool:
        """Return whether every referenced block is one of running requests alone and would be free without them at once."""
        scheduler = self.scheduler
        if scheduler.defer_block_free and self.planned:
            return False
        held: Counter[int] = Counter()
        for manager in scheduler.kv_cache_manager.coordinator.single_type_managers:
            for request in scheduler.running:
                held.update(block.block_id for block in manager.req_to_blocks.get(request.request_id, ()))
        blocks = scheduler.kv_cache_manager.block_pool.blocks
        return all(block.ref_cnt == held[block.block_id] for block in blocks if not block.is_null)

    def report(self, output: Any) -> None:
        """Deliver a report about transfers, as the end of an update does."""
        self.scheduler._update_from_kv_xfer_finished(output)

    def sample(self, step: Step, name: str, seed: random.Random) -> list[int]:
        """Return what a request samples in a step: nothing while prefilling, else the accepted drafts and one token more."""
        if not step.samples[name]:
            return []
        alphabet = self.alphabet(name)
        drafts = list(step.output.scheduled_spec_decode_tokens.get(name, ()))
        if self.asynchronous:  # the workers know the drafts, the scheduler only their number
            drafts = [token if token >= 0 else seed.choice(alphabet) for token in drafts]
        elif -1 in drafts:  # padding at an admission: no draft, and none that is accepted
            drafts = drafts[: drafts.index(-1)]
        return [*drafts[: seed.randint(0, len(drafts))], seed.choice(alphabet)]

    def draw_drafts(self, sampled: Mapping[str, list[int]], seed: random.Random) -> dict[str, list[int]]:
        """Return the next drafts of every request that sampled and runs on, as far as no later step computes it already."""
        # a scheduler that plans on placeholders verifies as many drafts as it has placeholders
        most = 0 if self.asynchronous else self.config["num_draft_tokens"]
        ahead = {name for step in self.planned for name in step.output.num_scheduled_tokens}
        names = [request.request_id for request in self.scheduler.running] if most else []
        going = [name for name in sorted(names) if sampled.get(name) and name not in ahead]
        return {name: [seed.choice(self.alphabet(name)) for _ in range(seed.randint(0, most))] for name in going}

    def alphabet(self, name: str) -> list[int]:
        """Return the tokens that a request can sample: those of its prompt, so that requests go on alike."""
        request = self.scheduler.requests.get(name)
        return sorted(set(request.prompt_token_ids)) if request is not None else [1]


__all__ = ["Driver", "Step", "Unsupported", "Worker", "build"]
