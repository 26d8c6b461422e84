"""Drivers of tests that perform every action on tensors as well, and compare."""

from __future__ import annotations

from kvproof.core.actions import Action
from kvproof.core.config import Config
from kvproof.core.records import Record
from kvproof.gpu import differential
from tests.core.offload.loading import Loading
from tests.driving import Driver
from tests.hosting import HostDriver
from tests.offloading import Hosted

DRIVERS: tuple[type[Driver], ...] = (Driver, Hosted, HostDriver, Loading)


def with_tensors(base: type[Driver]) -> type[Driver]:
    """A driver that fails where model and tensors differ."""

    class Both(base):  # type: ignore[valid-type, misc]
        def __init__(self, config: Config) -> None:
            super().__init__(config)
            self.both = differential.begin(config)

        def do(self, *actions: Action) -> Record:
            for action in actions:
                here = self.world is self.both.model or self.world == self.both.model
                super().do(action)
                if not here:
                    continue  # the test has put another world in: the tensors did not come to it
                self.both.act(action)
                assert self.both.difference is None, self.both.difference.text()
            last: Record = self.records[-1]
            return last

    return Both
