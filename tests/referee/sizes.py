"""The sizes of the projection that are compared, and what they came to: a changed count is a changed model."""

from __future__ import annotations

from attrs import frozen

from tests.referee.projection import Size


@frozen(slots=True)
class Pinned:
    """The counts of one size: orbits, the states in them, and the edges out of those."""

    size: Size
    orbits: int
    states: int
    edges: int

    @property
    def name(self) -> str:
        """Return the numbers of blocks, requests, columns and texts."""
        return f"{self.size.blocks}-{self.size.requests}-{self.size.columns}-{self.size.texts}"


SMALL = Pinned(Size(blocks=3, requests=2, columns=2, texts=1), 863, 8_418, 74_664)
"""Everything that the projection has, copies and promotions included; SPIN takes well below two seconds."""

FLAT = Pinned(Size(blocks=3, requests=2, columns=1, texts=1), 1_482, 13_506, 116_532)
"""One column: what is copied may be copied again, for which the small size has too few blocks."""

WHOLE = (
    SMALL,
    FLAT,
    Pinned(Size(blocks=2, requests=2, columns=2, texts=1), 52, 162, 1_142),
    Pinned(Size(blocks=3, requests=2, columns=2, texts=2), 1_495, 30_666, 295_068),
    Pinned(Size(blocks=3, requests=2, columns=3, texts=1), 253, 2_544, 21_288),
    Pinned(Size(blocks=3, requests=3, columns=2, texts=1), 1_519, 30_552, 344_508),
    Pinned(Size(blocks=4, requests=2, columns=1, texts=0), 960, 41_280, 376_944),
)
"""Compared edge by edge, every name kept."""

LARGE = Pinned(Size(blocks=5, requests=3, columns=2, texts=0), 15_899, 9_011_640, 116_554_920)
"""Where the reduced time is compared with SPIN's (benchmarks/referee.py)."""

COUNTED = (
    Pinned(Size(blocks=4, requests=2, columns=2, texts=1), 13_571, 540_120, 5_452_560),
    Pinned(Size(blocks=4, requests=2, columns=3, texts=1), 4_041, 161_712, 1_609_320),
    Pinned(Size(blocks=3, requests=3, columns=2, texts=2), 2_924, 133_290, 1_635_900),
    Pinned(Size(blocks=4, requests=3, columns=2, texts=0), 1_888, 200_184, 2_329_752),
    LARGE,
)
"""Compared by their counts only."""
