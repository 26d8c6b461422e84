"""The toy of `fake/` and what its workers answer, for tests of the recorder."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

FAKE = Path(__file__).parent / "fake"
MODULE = "vllm.v1.core.sched.scheduler"


@contextmanager
def toy_on_path(folder: Path = FAKE) -> Iterator[None]:
    """Let `import vllm` find the toy, or what a folder has in its place, and nothing of it stay."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
            del sys.modules[name]


def answer(output: Any, tokens: dict[str, list[int]]) -> Any:
    """What the workers report of a step."""
    names = list(output.num_scheduled_tokens)
    return type(output)(
        sampled_token_ids=[list(tokens.get(name, ())) for name in names],
        req_id_to_index={name: place for place, name in enumerate(names)},
        kv_connector_output=None,
    )


def submit(module: ModuleType, scheduler: Any, name: str, tokens: list[int], most: int = 3, **more: Any) -> None:
    """Submit a request."""
    scheduler.add_request(module.Request(name, tokens, most, scheduler.kv_cache_manager.size, **more))


def step(scheduler: Any) -> dict[str, int]:
    """Plan a step and report its output: whoever has all its tokens computed samples a 7. Returns what was scheduled."""
    output = scheduler.schedule()
    done = {
        name: [7]
        for name in output.num_scheduled_tokens
        if scheduler.requests[name].num_computed_tokens >= scheduler.requests[name].num_tokens
    }
    scheduler.update_from_output(output, answer(output, done))
    return dict(output.num_scheduled_tokens)


def story(module: ModuleType, scheduler: Any) -> list[Any]:
    """A short life with hits, a preemption, an abort and resets. Returns every decision of the scheduler."""
    decisions: list[Any] = []
    submit(module, scheduler, "a", [1, 2, 3, 4, 5])
    submit(module, scheduler, "b", [1, 2, 3, 9])
    decisions += [step(scheduler) for _ in range(3)]
    submit(module, scheduler, "c", [1, 2, 3, 4, 6, 6, 6])
    decisions += [step(scheduler) for _ in range(2)]
    decisions.append(scheduler.reset_prefix_cache(reset_running_requests=True))
    decisions += [step(scheduler) for _ in range(3)]
    submit(module, scheduler, "d", [8, 8])
    decisions.append([request.request_id for request in scheduler.finish_requests("d", module.RequestStatus.FINISHED_ABORTED)])
    decisions += [step(scheduler) for _ in range(8)]
    decisions.append([block.block_id for block in scheduler.kv_cache_manager.block_pool.queue])
    return decisions


def parsed(lines: list[str]) -> list[dict[str, Any]]:
    """The lines of a recording."""
    return [json.loads(line) for line in lines]


def as_bytes(lines: list[str]) -> bytes:
    """The lines as a file has them."""
    return "".join(line + "\n" for line in lines).encode()
