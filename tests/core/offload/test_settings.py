"""Settings of a host tier that cannot work are refused with the rule they break (3.1, 3.5)."""

from __future__ import annotations

from typing import Any

import pytest

from kvproof.core.config import Group, Offload, configure
from kvproof.core.connectors import Connector
from kvproof.core.errors import ConfigError


@pytest.mark.parametrize(
    ("offload", "settings", "message"),
    [
        ({"num_blocks": 0}, {}, "num_blocks"),
        ({"workers": 0}, {}, "workers"),
        ({"mode": "both"}, {}, "offload.mode"),
        ({"flush": "last"}, {}, "offload.flush"),
        ({"store_submission": "later"}, {}, "offload.store_submission"),
        ({"hold_loads": "yes"}, {}, "offload.hold_loads"),
        ({"resumed": "never"}, {}, "offload.resumed"),
        ({"hold_loads": 0}, {}, "offload.hold_loads"),
        ({"hold_loads": 1}, {"defer_block_free": True}, "offload.hold_loads"),
        ({}, {"caching": False}, "caching"),
        ({}, {"max_steps_in_flight": 2}, "defer_block_free"),
        ({"hold_loads": True}, {}, "defer_block_free"),
    ],
)
def test_settings_that_cannot_work(offload: dict[str, Any], settings: dict[str, Any], message: str) -> None:
    """Each of these is a ConfigError that names the setting."""
    with pytest.raises(ConfigError, match=message):
        configure((Group("full_attention", 4),), offload=Offload(**offload), **settings)


@pytest.mark.parametrize("offload", ["eager", 8, True, False, {}, {"mode": "lazy"}, Offload])
def test_a_host_tier_is_given_as_its_own_type(offload: Any) -> None:
    """The name of a mode or a dictionary is no host tier; nothing is taken for "none" but None."""
    with pytest.raises(ConfigError, match="offload"):
        configure((Group("full_attention", 4),), offload=offload)


@pytest.mark.parametrize("connectors", [True, [True], (1,), (None,), (Connector("NixlConnector"),)])
def test_connectors_are_given_by_what_they_can(connectors: Any) -> None:
    """A connector in place of its capability would count as capable (CA-1)."""
    with pytest.raises(ConfigError, match=r"connectors.flags"):
        configure((Group("full_attention", 4),), connectors=connectors)


def test_the_parts_of_a_step() -> None:
    """With a host tier a step waits for transfers, first or directly before its forward, and submits behind it (T0)."""
    group = Group("full_attention", 4)
    assert configure((group,)).parts == ("zero", "copy", "load", "precopy", "forward")
    first, late = (configure((group,), offload=offload).parts for offload in (Offload(), Offload(flush="before_forward")))
    assert first == ("flush", "zero", "copy", "load", "precopy", "forward", "submit")
    assert late == ("zero", "copy", "load", "precopy", "flush", "forward", "submit")
