"""External lookups (T20): where they may start, how far they reach, and the pins that they leave."""

from __future__ import annotations

from typing import Any

from kvproof.core import actions as act
from kvproof.core import errors
from kvproof.core.config import Group, Offload
from kvproof.core.offload import external
from kvproof.core.step import refusal
from kvproof.core.world import Phase
from tests.core.offload.loading import Loading
from tests.offloading import FULL, MAMBA, hosted


def stored(prompt: int = 50, *chunks: int, **settings: Any) -> Loading:
    """N=4, FA16 (E=64), Mamba16: request 0 is on the host, the device's keys are gone, request 1 resends it."""
    sizes: dict[str, Any] = {"dcp_size": 4, **settings}
    driver = Loading(hosted(Group(FULL, 16), Group(MAMBA, 16), **sizes))
    driver.submit(0, prompt)
    driver.store(0, *(chunks or (48, 2)))
    driver.wipe()
    driver.submit(1, prompt)
    driver.do(act.BeginStep())
    return driver


def test_a_hit_is_pinned_and_the_local_one_stays() -> None:
    """T20.5: the lookup may come without a local one or behind it; each block of the hit has a reference."""
    driver = stored()
    record = driver.do(act.LookupExternal(1, 0))
    assert (record.external, record.lists) == (48, ((2,), (0, 0, 1)))
    assert driver.world.phase is Phase.PLAN_WAITING
    assert driver.host.pool.ref[:3] == (0, 1, 1)
    driver.do(act.Lookup(1), act.LookupExternal(1, 0))
    assert driver.world.hit is not None


def test_a_new_lookup_drops_the_earlier_pin() -> None:
    """M-LEAK-2: after each lookup a block has one reference; one that hits nothing leaves none."""
    driver = stored()
    for _ in range(3):
        driver.do(act.LookupExternal(1, 0))
        assert driver.host.pool.ref[:3] == (0, 1, 1)
    driver.do(act.LookupExternal(1, 48))
    assert (driver.host.pending, sum(driver.host.pool.ref)) == ((), 0)


def test_a_misaligned_start_is_noticed_once() -> None:
    """CP-6, M-MIS-1: nothing is looked up inside a block of the device, and the notice is given once."""
    driver = stored()
    driver.do(act.LookupExternal(1, 0))
    record = driver.do(act.LookupExternal(1, 48))
    assert (record.external, record.lists, record.notices) == (0, ((), ()), (external.MISALIGNED,))
    assert (driver.host.pending, sum(driver.host.pool.ref)) == ((), 0)
    assert driver.do(act.LookupExternal(1, 16)).notices == ()


def test_one_token_is_left_to_compute() -> None:
    """T20.4: the hit ends before the last token; behind all tokens but one nothing is asked for, nor without hashes."""
    driver = stored(64, 48, 16)
    assert driver.do(act.LookupExternal(1, 0)).external == 48
    assert driver.do(act.LookupExternal(1, 64)).external == 0
    driver.close()
    driver.submit(2, 65)
    driver.do(act.BeginStep())
    assert driver.do(act.LookupExternal(2, 64)).external == 0
    driver.close()
    driver.submit(3, 7)
    driver.do(act.BeginStep())
    assert driver.do(act.LookupExternal(3, 0)).external == 0


def test_a_request_may_opt_out() -> None:
    """T20.2: one that skips reading hits nothing, and is not noticed either."""
    driver = stored()
    driver.close()
    driver.do(act.Submit(2, tuple(range(1, 51)), skip_reading=True), act.BeginStep())
    record = driver.do(act.LookupExternal(2, 48))
    assert (record.external, record.notices) == (0, ())


def test_chunks_of_local_attention_start_where_those_of_the_request_do() -> None:
    """T20.3: C = 8, blocks of 4: behind 4 tokens the host's chunks would not be the request's."""
    driver = Loading(hosted(Group(FULL, 4), Group("chunked_local", 4, window=8)))
    driver.submit(0, 17)
    driver.store(0, 8, 4, 5)
    driver.wipe()
    driver.submit(1, 17)
    driver.do(act.BeginStep())
    assert driver.do(act.LookupExternal(1, 4)).external == 0
    assert driver.do(act.LookupExternal(1, 8)).external == 8


def test_lazy_hits_end_on_scheduler_blocks() -> None:
    """HB-8, M-LAZY-1: the same keys on the host: eager 48, lazy nothing, since S = 64."""
    driver = stored()
    assert driver.do(act.LookupExternal(1, 0)).external == 48
    lazy = hosted(Group(FULL, 16), Group(MAMBA, 16), dcp_size=4, offload=Offload("lazy", 20))
    view = external.host_view(lazy)
    assert (lazy.alignment, view.alignment, view.fine_grained) == (16, 64, False)
    assert external.host_view(driver.world.config) is driver.world.config
    plain = hosted(Group(FULL, 16), offload=None)
    assert external.host_view(plain).alignment == 16


def test_a_pin_that_no_load_takes_is_released() -> None:
    """T29, CP-4: by an admission without a load, and by the end of the request."""
    driver = stored()
    driver.do(act.Lookup(1), act.LookupExternal(1, 0), act.Allocate(1, 48))
    assert (driver.host.pending, sum(driver.host.pool.ref)) == ((), 0)
    driver = stored()
    driver.do(act.LookupExternal(1, 0))
    driver.close()
    driver.do(act.Finish(1))
    assert (driver.host.pending, sum(driver.host.pool.ref)) == ((), 0)


def test_another_connector_may_bring_the_tokens() -> None:
    """T29: external tokens without a load are another connector's, and come with the step."""
    driver = stored()
    driver.do(act.Lookup(1), act.LookupExternal(1, 0))
    record = driver.do(act.Allocate(1, 2, 0, 48))
    assert (record.pairs, record.queries, record.hits) == ((), 50, 48)
    assert driver.host.pending == ()
    driver.close()


def test_a_start_beyond_the_tokens_is_refused() -> None:
    """T20: the start lies within the request's tokens."""
    driver = stored()
    for start in (-64, 64):
        assert isinstance(refusal(driver.world, act.LookupExternal(1, start)), errors.LookupMismatch)
