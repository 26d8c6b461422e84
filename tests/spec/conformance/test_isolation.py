"""Whatever an adapter does to its process, who judges it gets words and goes on."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import NoReturn

import pytest
from attrs import define, field

from kvproof.core.actions import Action, BeginStep, Drain
from kvproof.core.config import Config, Group, configure
from kvproof.spec.conformance import channel
from kvproof.spec.conformance.adapter import (
    Adapter,
    AdapterError,
    Geometry,
    Observation,
    PoolState,
    Shows,
    State,
    Unsupported,
)
from kvproof.spec.conformance.isolation import Died, Direct, Isolated, guarded

CONFIG = configure((Group("full_attention", 4),))


@define
class Odd:
    """An adapter that answers BeginStep with its process id and does something odd on every other action."""

    odd: Callable[[], object] = Observation
    name: str = "odd"
    shows: frozenset[Shows] = frozenset()
    null_block: int = 0
    started: list[int] = field(factory=list)

    def start(self, config: Config) -> None:
        if config.dcp_size > 1:
            raise Unsupported("one rank only")
        self.started.append(config.num_blocks)

    def perform(self, action: Action) -> Observation:
        if isinstance(action, BeginStep):
            return Observation({"pid": os.getpid(), "started": tuple(self.started)})
        answer = self.odd()
        assert isinstance(answer, Observation), "as a release without checks would"
        return answer


@define
class Sized(Odd):
    def geometry(self, config: Config) -> Geometry:
        return Geometry(sizes=config.sizes)


def crash() -> NoReturn:
    raise KeyError("block 7")


def leave() -> NoReturn:
    os._exit(3)


def stop() -> NoReturn:
    raise SystemExit(4)


def interrupt() -> NoReturn:
    raise KeyboardInterrupt


def skip() -> NoReturn:
    pytest.skip("not today")


def unsupported() -> NoReturn:
    raise Unsupported("tired")


def double() -> Observation:
    os.fork()
    return Observation()


def nameless() -> Observation:
    """Show an object of a class that only the process of the adapter has."""
    made = type("Late", (), {})
    made.__module__ = __name__
    globals()["Late"] = made
    return Observation({"copies": made()})


def chatty() -> Observation:
    os.write(1, b"hello from the adapter")
    return Observation()


def fault() -> None:
    faulthandler.disable()  # its report would stand among the output of the tests
    os.kill(os.getpid(), signal.SIGSEGV)


def hang() -> NoReturn:
    while True:
        time.sleep(60)


@pytest.fixture
def isolated() -> Iterator[Callable[..., Isolated]]:
    made: list[Isolated] = []

    def make(odd: Callable[[], object] = Observation, limit: float = 30.0) -> Isolated:
        made.append(Isolated(Odd(odd), limit))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_it_runs_elsewhere_and_the_adapter_here_is_never_started(isolated: Callable[..., Isolated]) -> None:
    one = isolated()
    one.start(CONFIG)
    one.start(configure((Group("full_attention", 4),), num_blocks=9))
    shown = one.perform(BeginStep()).result
    assert shown["started"] == (16, 9)
    assert shown["pid"] != os.getpid()
    assert isinstance(one.adapter, Odd)
    assert one.adapter.started == []
    assert (one.name, one.shows, one.null_block) == ("odd", frozenset(), 0)
    assert isinstance(one, Adapter)


@pytest.mark.parametrize(
    ("odd", "how", "words"),
    [
        (crash, "raised", "KeyError: 'block 7'"),
        (leave, "died", "exit status 3"),
        (stop, "died", "exit status 4"),
        (interrupt, "raised", "KeyboardInterrupt"),
        (skip, "raised", "Skipped: not today"),
        (fault, "died", "was killed by SIGSEGV"),
        (lambda: None, "raised", "AssertionError: as a release without checks would"),
    ],
)
def test_a_crash_has_words_and_the_next_start_works(
    isolated: Callable[..., Isolated], odd: Callable[[], object], how: str, words: str
) -> None:
    one = isolated(odd)
    one.start(CONFIG)
    with pytest.raises(Died) as caught:
        one.perform(Drain())
    assert caught.value.how == how
    assert words in caught.value.words
    one.start(CONFIG)
    started = one.perform(BeginStep()).result["started"]
    assert started == ((16, 16) if how == "raised" else (16,))


def test_an_escaped_exception_says_where(isolated: Callable[..., Isolated]) -> None:
    one = isolated(crash)
    one.start(CONFIG)
    with pytest.raises(Died, match=r"raised KeyError: 'block 7' at conformance/test_isolation.py:\d+ in crash"):
        one.perform(Drain())


def test_a_hang_ends_after_the_limit_with_its_process(isolated: Callable[..., Isolated]) -> None:
    one = isolated(hang, 0.2)
    one.start(CONFIG)
    one.limit = 30.0
    pid = one.perform(BeginStep()).result["pid"]
    assert isinstance(pid, int)
    one.limit = 0.2
    with pytest.raises(Died, match=r"did not answer within 0\.2 s") as caught:
        one.perform(Drain())
    assert caught.value.how == "hung"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    one.limit = 30.0
    one.start(CONFIG)
    assert one.perform(BeginStep()).result["pid"] != pid


def test_what_the_adapter_has_started_ends_with_it(isolated: Callable[..., Isolated]) -> None:
    """The grandchild holds the writing end of a pipe: it is closed only when the grandchild is gone."""
    reading, writing = os.pipe()

    def fork_and_hang() -> NoReturn:
        os.fork()
        hang()

    one = isolated(fork_and_hang, 0.3)
    one.start(CONFIG)
    os.close(writing)
    with pytest.raises(Died, match="did not answer"):
        one.perform(Drain())
    assert os.read(reading, 1) == b""
    os.close(reading)


def test_it_may_start_processes_itself(isolated: Callable[..., Isolated]) -> None:
    def start_one() -> Observation:
        process = multiprocessing.get_context("fork").Process(target=leave)
        process.start()
        process.join()
        return Observation({"code": process.exitcode})

    one = isolated(start_one)
    one.start(CONFIG)
    assert one.perform(Drain()).result == {"code": 3}


def test_unsupported_and_broken_contracts_are_told_apart(isolated: Callable[..., Isolated]) -> None:
    one = isolated(lambda: Observation({"lock": threading.Lock()}))
    with pytest.raises(Unsupported, match="one rank only"):
        one.start(configure((Group("full_attention", 4),), dcp_size=2))
    one.start(CONFIG)
    with pytest.raises(AdapterError, match="cannot be sent to another process: TypeError"):
        one.perform(Drain())
    with pytest.raises(AdapterError, match="has no method geometry"):
        one.geometry(CONFIG)
    assert one.perform(BeginStep()).result["started"] == (16,)


def test_geometry_is_asked_in_the_process() -> None:
    one = Isolated(Sized())
    assert one.geometry(CONFIG).sizes == (4,)
    one.close()
    one.close()
    assert Direct(Sized()).geometry(CONFIG).sizes == (4,)
    with pytest.raises(AdapterError, match="has no method geometry"):
        Direct(Odd()).geometry(CONFIG)


def test_in_this_process_an_exception_is_a_verdict_too() -> None:
    one = guarded(Odd(crash), isolation=False)
    assert isinstance(one, Direct)
    one.start(CONFIG)
    assert one.perform(BeginStep()).result["pid"] == os.getpid()
    with pytest.raises(Died, match="raised KeyError: 'block 7'") as caught:
        one.perform(Drain())
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(Unsupported):
        one.start(configure((Group("full_attention", 4),), dcp_size=2))
    one.close()


def test_without_fork_it_falls_back_to_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(guarded(Odd()), Isolated)
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    assert isinstance(guarded(Odd()), Direct)


@pytest.mark.parametrize("odd", [stop, skip])
def test_in_this_process_what_would_end_it_is_a_verdict(odd: Callable[[], object]) -> None:
    one = Direct(Odd(odd))
    one.start(CONFIG)
    with pytest.raises(Died, match="raised S") as caught:
        one.perform(Drain())
    assert caught.value.how == "raised"


def test_in_this_process_an_interrupt_is_the_users() -> None:
    one = Direct(Odd(interrupt))
    one.start(CONFIG)
    with pytest.raises(KeyboardInterrupt):
        one.perform(Drain())


def test_only_a_start_is_unsupported(isolated: Callable[..., Isolated]) -> None:
    """A scope in which an action says so would be left out, with everything that was found in it."""
    for one in (isolated(unsupported), Direct(Odd(unsupported))):
        one.start(CONFIG)
        with pytest.raises(AdapterError, match=r"Drain raised Unsupported \(tired\): only start"):
            one.perform(Drain())


def test_in_this_process_what_is_shown_stays_as_it_was() -> None:
    free = [1, 2, 3]
    one = Direct(Odd(lambda: Observation(state=State(PoolState(free=free)))))
    one.start(CONFIG)
    shown = one.perform(Drain()).state.device.free
    free.pop()
    assert shown == [1, 2, 3]
    assert one.perform(Drain()).state.device.free is not free


def test_what_it_prints_stays_out_of_the_report(isolated: Callable[..., Isolated], capfd: pytest.CaptureFixture[str]) -> None:
    one = isolated(chatty)
    one.start(CONFIG)
    one.perform(Drain())
    one.close()
    out, err = capfd.readouterr()
    assert out == ""
    assert "hello from the adapter" in err


def test_what_only_its_own_process_knows_is_told(isolated: Callable[..., Isolated]) -> None:
    one = isolated(nameless)
    one.start(CONFIG)
    with pytest.raises(AdapterError, match="cannot be sent to another process: AttributeError"):
        one.perform(Drain())


def test_in_this_process_what_cannot_be_copied_is_told() -> None:
    one = Direct(Odd(lambda: Observation({"copies": (value for value in range(3))})))
    one.start(CONFIG)
    with pytest.raises(AdapterError, match="cannot be sent to another process: TypeError"):
        one.perform(Drain())


def test_a_process_that_an_action_leaves_behind_answers_nothing(isolated: Callable[..., Isolated]) -> None:
    one = isolated(double)
    one.start(CONFIG)
    for _ in range(3):
        one.perform(Drain())
        assert len({one.perform(BeginStep()).result["pid"] for _ in range(5)}) == 1


def written_to(descriptors: Callable[[], Iterable[int]]) -> Observation:
    for descriptor in descriptors():
        with suppress(OSError):
            os.write(descriptor, b"junkjunkjunk")
    return Observation()


def alone(name: str) -> None:
    """Run a function of this file in a process of its own: what it writes to every descriptor must not meet those of the tests."""
    code = f"from tests.spec.conformance import test_isolation; test_isolation.{name}()"
    done = subprocess.run([sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_who_writes_to_low_descriptors_does_not_meet_the_connection() -> None:
    alone("writes_to_low_descriptors")


def writes_to_low_descriptors() -> None:
    adapter = guarded(Odd(lambda: written_to(lambda: range(3, 200))), limit=20)
    try:
        adapter.start(CONFIG)
        assert [adapter.perform(Drain()) for _ in range(3)] == [Observation()] * 3
    finally:
        adapter.close()


def test_who_writes_into_the_connection_ends_it() -> None:
    """And nobody waits for the rest of a message that never comes."""
    alone("writes_into_the_connection")


def writes_into_the_connection() -> None:
    adapter = guarded(Odd(lambda: written_to(lambda: [int(name) for name in os.listdir("/dev/fd") if int(name) > 2])), limit=20)
    try:
        adapter.start(CONFIG)
        with pytest.raises(Died, match="wrote to the descriptor of the connection") as died:
            adapter.perform(Drain())
        assert died.value.how == "died"
        adapter.start(CONFIG)
        assert adapter.perform(BeginStep()).result["started"] == (CONFIG.num_blocks,)
    finally:
        adapter.close()


def test_half_a_message_is_not_waited_for_longer_than_the_limit() -> None:
    here, there = socket.socketpair()
    with here, there:
        there.sendall(channel.MARK + (100).to_bytes(channel.LENGTH, "big") + b"half")
        with pytest.raises(channel.Overdue):
            channel.Channel(here.fileno()).receive(0.0)
