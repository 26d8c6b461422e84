"""The picture of a counterexample as an SVG file: the blocks in question over time, as far as they changed.

It fits beside the text of a change: at most ``ROWS`` blocks and ``COLUMNS`` actions, the last ones. Everything that a colour
says is said by a letter or a mark as well.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape

from kvproof.spec.counterexample import Counterexample
from kvproof.spec.report import film as films
from kvproof.spec.report import lineage, lines
from kvproof.spec.report.film import Film, Frame, Tier, block_name
from kvproof.spec.report.legible import legible
from kvproof.spec.report.rerun import Rerun, run_again
from kvproof.spec.report.window import Row

ROWS, COLUMNS = 16, 24
WIDTH, HEIGHT, LEFT, TOP = 40, 24, 64, 58
LINE, LETTER, TITLE_LINES = 16, 8, 5
"""Of text: the distance of lines, the width of a bold letter, and lines of the title at most; its element has all of it."""
COLOURS = ("#cfe3ff", "#ffe0b8", "#d5f2cf", "#ecd5fb", "#ffd3d9", "#d2f3f1")
KEY = (
    "columns: actions; 0: in the table of request 0, p: other holder, ·2: free at place 2,",
    "×2: references, •: has a key, ✗: at rest its bytes are not what the key claims,",
    "dashed frame: a block in question",
)
NARROWEST = 640
STYLE = (
    "text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:#1b1f24}"
    ".s{fill:#57606a}.b{font-weight:700}.x{fill:#b3261e;font-weight:700}"
    "rect{stroke:#d0d7de;fill:#fff}rect.v{fill:none;stroke:#b3261e;stroke-width:2}"
    "rect.n{fill:none;stroke:#b3261e;stroke-dasharray:4 2}"
    + "".join(f"rect.c{at}{{fill:{colour}}}" for at, colour in enumerate(COLOURS))
)


def render(example: Counterexample, seen: Rerun | None = None) -> str:
    """Return the SVG text. Raises NoWorld if there is nothing to draw: the configuration is refused, or cannot be run."""
    seen = seen or run_again(example)
    example, film = seen.here, seen.film
    if film is None:
        raise films.NoWorld(f"there is no world to show: {seen.why}")
    named = lineage.in_question(example, film)
    rows = _rows(film, list(named))
    columns = _columns(film, rows)
    return legible(_svg(example, film, rows, columns, set(named), seen))


def _rows(film: Film, named: Sequence[Row]) -> list[Row]:
    """Return the blocks to show: those in question, then those that changed last, then any, in the order of the pools."""
    lately = (row for number in range(film.broken, 0, -1) for row in lineage.touched(film, number))
    wanted: dict[Row, None] = {}
    for row in (*named, *lately, *(film.window.rows if len(film.frames) == 1 else ())):
        if len(wanted) == ROWS:
            break
        wanted.setdefault(row)
    return [row for row in film.window.rows if row in wanted]


def _columns(film: Film, rows: Sequence[Row]) -> list[int]:
    """Return the worlds to show: those in which a block of the rows changed, and the one that breaks the law.

    Without any action that is the new world.
    """
    shown, broken = set(rows), film.broken
    numbers = range(film.window.first, broken + 1)
    changing = [number for number in numbers if number == broken or shown & set(lineage.touched(film, number))]
    return changing[-COLUMNS:]


def _svg(
    example: Counterexample,
    film: Film,
    rows: Sequence[Row],
    columns: Sequence[int],
    named: set[Row],
    seen: Rerun,
) -> str:
    width = max(LEFT + WIDTH * len(columns) + 12, NARROWEST)
    broken = f"{example.law}: {example.message}, at {lines.place(example)}"
    title = f"NOT SEEN HERE. {seen.head}" if seen.gone else broken
    if film.follows is not None and film.follows.left:
        title += f". Left open: {'; '.join(film.follows.left)}"
    head = textwrap.wrap(title, (width - 16) // LETTER)[:TITLE_LINES]
    top, notes = TOP + LINE * (len(head) - 1), _notes(film, columns, rows)
    height = top + HEIGHT * len(rows) + 14 + LINE * len(notes)
    about = "One row per block, one column per action that changed one of them"
    about += "." if seen.gone else "; the frame marks where the law breaks."
    about = " ".join((*seen.notes, about, film.window.said)).rstrip()
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
        'aria-labelledby="t d">',
        f'<title id="t">{escape(title)}</title>',
        f'<desc id="d">{escape(about)}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" style="stroke:none"/>',
        *(f'<text x="8" y="{18 + LINE * at}" class="b">{escape(text)}</text>' for at, text in enumerate(head)),
        f'<text x="8" y="{top - 10}" class="s">block</text>',
    ]
    for at, number in enumerate(columns):
        x, label = LEFT + at * WIDTH, film.label(number - 1) if number else "start"
        out.append(f'<text x="{x + WIDTH // 2}" y="{top - 10}" text-anchor="middle" class="s">{label}</text>')
    colours: dict[str, int] = {}
    for row, (tier, block) in enumerate(rows):
        y = top + row * HEIGHT
        name = block_name(tier, block)
        out.append(f'<text x="{LEFT - 10}" y="{y + 16}" text-anchor="end" class="b">{name}</text>')
        if (tier, block) in named:
            out.append(f'<rect class="n" x="4" y="{y + 2}" width="{LEFT - 10}" height="{HEIGHT - 4}"/>')
        for at, number in enumerate(columns):
            out += _cell(film.frame(number), tier, block, LEFT + at * WIDTH, y, colours)
    if columns and columns[-1] == film.broken and not seen.gone:
        x = LEFT + (len(columns) - 1) * WIDTH
        out.append(f'<rect class="v" x="{x}" y="{top - 2}" width="{WIDTH}" height="{HEIGHT * len(rows) + 4}"/>')
    first = height - LINE * len(notes) + 4
    out += [f'<text x="8" y="{first + LINE * at}" class="s">{escape(text)}</text>' for at, text in enumerate(notes)]
    out.append("</svg>")
    return "\n".join(out) + "\n"


def _notes(film: Film, columns: Sequence[int], rows: Sequence[Row]) -> list[str]:
    """Return the lines below the picture: how to read it, and what is not there."""
    out: list[str] = [*KEY]
    if not film.moments:
        out.append("there is no action: this is the new world, in which nothing happened yet")
    elif len(film.moments) > film.told and any(number > film.told for number in columns):
        out.append("+1, +2, ...: what the law lets happen behind the last action")
    where = "the violation" if film.breaks else "where the file has it"
    shown = f"{len(columns)} of {film.broken + 1} worlds up to {where}, {len(rows)} of {film.window.blocks} blocks"
    return [*out, shown]


def _cell(frame: Frame, tier: Tier, block: int, x: int, y: int, colours: dict[str, int]) -> list[str]:
    found = frame.of(tier, block)
    colour = ""
    if found.owners:
        colour = f' class="c{colours.setdefault(found.owners[0][0], len(colours)) % len(COLOURS)}"'
    text = found.glyph
    wrong = frame.settled and bool(found.wrong)
    return [
        f'<rect{colour} x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text x="{x + WIDTH // 2}" y="{y + 16}" text-anchor="middle"{" class=" + chr(34) + "x" + chr(34) if wrong else ""}>'
        f"{escape(text + ('✗' if wrong else ''))}</text>",
    ]
