"""The picture of a counterexample as an SVG file: the blocks in question over time, as far as they changed.

It fits beside the text of a change: at most ``ROWS`` blocks and ``COLUMNS`` actions, the last ones. Everything that a colour
says is said by a letter or a mark as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from kvproof.spec.counterexample import Counterexample
from kvproof.spec.report import film as films
from kvproof.spec.report import lineage, lines
from kvproof.spec.report.film import Block, Film, Frame
from kvproof.spec.report.standing import Standing, look

ROWS, COLUMNS = 16, 24
WIDTH, HEIGHT, LEFT, TOP = 40, 24, 64, 58
COLOURS = ("#cfe3ff", "#ffe0b8", "#d5f2cf", "#ecd5fb", "#ffd3d9", "#d2f3f1")
KEY = (
    "columns: actions; 0: in the table of request 0, p: other holder, ·2: free at place 2,",
    "×2: references, •: has a key, ✗: at rest its bytes are not what the key claims",
)
NARROWEST = 640
STYLE = (
    "text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:#1b1f24}"
    ".s{fill:#57606a}.b{font-weight:700}.x{fill:#b3261e;font-weight:700}"
    "rect{stroke:#d0d7de;fill:#fff}rect.v{fill:none;stroke:#b3261e;stroke-width:2}"
    "rect.n{fill:none;stroke:#b3261e;stroke-dasharray:4 2}"
    + "".join(f"rect.c{at}{{fill:{colour}}}" for at, colour in enumerate(COLOURS))
)


def render(example: Counterexample, standing: Standing | None = None) -> str:
    """Return the SVG text. Raises CounterexampleError for what cannot be run again; NoWorld if the configuration is refused."""
    standing = standing or look(example)
    film = standing.world()
    if film is None:
        raise films.NoWorld("there is no world to show: the configuration is refused")
    lives = lineage.lives(example, film)
    broken = films.violation_of(example)
    rows = _rows(film, lives, broken)
    columns = _columns(film, rows, broken)
    return _svg(example, film, rows, columns, {(life.tier, life.block) for life in lives}, broken, standing)


def _rows(film: Film, lives: Sequence[lineage.Life], broken: int) -> list[tuple[films.Tier, int]]:
    """Return the blocks to show: those in question, then those that changed last, in the order of the pools."""
    wanted = dict.fromkeys((life.tier, life.block) for life in lives)
    for number in range(broken, 0, -1):
        for name in lineage.touched(film, number):
            if len(wanted) < ROWS:
                wanted.setdefault(name)
    return [(block.tier, block.block) for block in film.frames[0].blocks() if (block.tier, block.block) in wanted]


def _columns(film: Film, rows: Sequence[tuple[films.Tier, int]], broken: int) -> list[int]:
    """Return the frames to show: those in which a block of the rows changed, and the one that breaks the law."""
    shown = set(rows)
    changing = [number for number in range(1, broken + 1) if number == broken or shown & set(lineage.touched(film, number))]
    return changing[-COLUMNS:]


def _svg(
    example: Counterexample,
    film: Film,
    rows: Sequence[tuple[films.Tier, int]],
    columns: Sequence[int],
    named: set[tuple[films.Tier, int]],
    broken: int,
    standing: Standing,
) -> str:
    width, height = max(LEFT + WIDTH * len(columns) + 12, NARROWEST), TOP + HEIGHT * len(rows) + 46
    title = f"{'NOT SEEN HERE. ' if standing.gone else ''}{example.law}: {example.message}, at {lines.place(example)}"
    about = "One row per block, one column per action that changed one of them; the frame marks where the law breaks."
    about = " ".join((*standing.notes, about))
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
        'aria-labelledby="t d">',
        f'<title id="t">{escape(title)}</title>',
        f'<desc id="d">{escape(about)}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" style="stroke:none"/>',
        f'<text x="8" y="18" class="b">{escape(_cut(title, width // 8))}</text>',
        '<text x="8" y="48" class="s">block</text>',
    ]
    colours: dict[str, int] = {}
    for at, number in enumerate(columns):
        x = LEFT + at * WIDTH
        position = film.frames[number].position
        out.append(f'<text x="{x + WIDTH // 2}" y="48" text-anchor="middle" class="s">{position}</text>')
    for row, (tier, block) in enumerate(rows):
        y = TOP + row * HEIGHT
        name = films.block_name(tier, block)
        out.append(f'<text x="{LEFT - 10}" y="{y + 16}" text-anchor="end" class="b">{name}</text>')
        if (tier, block) in named:
            out.append(f'<rect class="n" x="4" y="{y + 2}" width="{LEFT - 10}" height="{HEIGHT - 4}"/>')
        for at, number in enumerate(columns):
            out += _cell(film.frames[number], tier, block, LEFT + at * WIDTH, y, colours)
    if columns and columns[-1] == broken:
        x = LEFT + (len(columns) - 1) * WIDTH
        out.append(f'<rect class="v" x="{x}" y="{TOP - 2}" width="{WIDTH}" height="{HEIGHT * len(rows) + 4}"/>')
    out += [f'<text x="8" y="{height - 24 + 16 * at}" class="s">{escape(text)}</text>' for at, text in enumerate(KEY)]
    out.append("</svg>")
    return "\n".join(out) + "\n"


def _cell(frame: Frame, tier: films.Tier, block: int, x: int, y: int, colours: dict[str, int]) -> list[str]:
    found = frame.of(tier, block)
    colour = ""
    if found.owners:
        colour = f' class="c{colours.setdefault(found.owners[0][0], len(colours)) % len(COLOURS)}"'
    text = glyph(found)
    wrong = frame.settled and bool(found.wrong)
    return [
        f'<rect{colour} x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text x="{x + WIDTH // 2}" y="{y + 16}" text-anchor="middle"{" class=" + chr(34) + "x" + chr(34) if wrong else ""}>'
        f"{escape(text + ('✗' if wrong else ''))}</text>",
    ]


def glyph(block: Block) -> str:
    """Return a block in a few characters: who has it, references if there are several, and whether it has a key."""
    labels = list(dict.fromkeys(owner[0][1:] for owner in block.owners))
    if labels:
        text = "+".join(labels) if len(labels) < 3 else f"{len(labels)}x"
    elif block.pins:
        text = "p"
    elif block.place is not None:
        text = f"·{block.place}"
    else:
        text = "?" if block.refs else ""
    return text + (f"×{block.refs}" if block.refs > 1 else "") + ("•" if block.claims else "")


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."
