"""What the table of kills says of one fault."""

from __future__ import annotations

from attrs import frozen


@frozen(slots=True)
class Kill:
    """How a planted fault is found: by which law in which scope, after how many actions (0: by the configuration alone)."""

    scope: str
    law: str
    length: int
