"""``kvproof explain`` as one HTML file: which group ends a hit, where and by which rule; and the blocks, if they are few.

What is asked most often is no violation: why a second request hits as far as it does, and no further.
"""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from kvproof.spec import counterexample as examples
from kvproof.spec.explain import host_words, rules, words
from kvproof.spec.explain.answer import Answer, ClassAnswer
from kvproof.spec.explain.divergence import Divergence
from kvproof.spec.explain.hosts import HostAnswer, HostLookup
from kvproof.spec.report import film as films
from kvproof.spec.report import lines, page, templating

MOST = 60
"""Stretches of boundaries that are listed for a class."""
WIDTH, ROW, LEFT = 1000, 30, 190


def render(answer: Answer, closed: Answer | None = None, host: HostAnswer | None = None, cost: Divergence | None = None) -> str:
    """Return the page of an answer; ``closed`` is the same with the gate closed, ``host`` what the host tier does, if asked.

    ``cost`` is what divergent hits cost or save.
    """
    gone = None if host is None else next((one for one in host.lookups if one.asked.device == "gone"), None)
    shown = (*answer.classes, *(() if gone is None else gone.found.classes))
    used = {reason.rule for one in shown for reason in one.candidates}
    return templating.render(
        "explained.html.j2",
        answer=answer,
        question=answer.question,
        share=words.share(answer),
        cause=words.cause(answer),
        gate=words.why_gate(answer),
        gate_line=words.gate_line(answer, closed),
        sizes=words.sizes(answer),
        kinds=words.ENGINE_KINDS,
        strips=Markup(strips(answer.classes, answer.question.resend, answer.joint)),
        classes=[(one, words.interesting(one, MOST)) for one in answer.classes],
        signs=words.SIGNS,
        rules=[(rule, meaning) for rule, meaning in rules.MEANINGS.items() if rule in used],
        divergence="" if cost is None else host_words.divergence(cost),
        host=host,
        **({} if host is None else _host(answer, host, gone)),
        data=_film(answer),
        film=None,
        jump="Jump to the lookup",
        jump_short="lookup",
        jump_where="where the lookup is",
        style=Markup(templating.source("style.css")),
        script=Markup(templating.source("player.js")),
    )


def _host(answer: Answer, host: HostAnswer, gone: HostLookup | None) -> dict[str, Any]:
    """Return what the host tier's section has: what was stored, the lookups, and the host's own candidates."""
    candidates = () if gone is None else gone.found.classes
    return {
        "host_settings": host_words.settings(host),
        "stored": host_words.stored_lines(answer, host),
        "nothing_stored": "" if host_words.stored_lines(answer, host) else host_words.nothing_stored(answer, host),
        "holdings": host_words.holdings(host),
        "most": MOST,
        "host_lookups": [
            (one, host_words.DEVICE[one.asked.device], host_words.branch(one), host_words.cause(answer, one))
            for one in host.lookups
        ],
        "gone": gone,
        "gone_strips": "" if gone is None else Markup(strips(candidates, answer.question.resend, gone.found.joint)),
        "gone_classes": [(one, words.interesting(one, MOST)) for one in candidates],
        "landed": [
            (host_words.DEVICE[one.asked.device], one.landings[:MOST], max(len(one.landings) - MOST, 0))
            for one in host.lookups
            if one.landings
        ],
    }


def strips(classes: tuple[ClassAnswer, ...], total: int, joint: int) -> str:
    """Return the SVG of all classes over the tokens of the second prompt: one strip each, a letter and a tint per rule."""
    height = ROW * len(classes) + 52
    scale = (WIDTH - LEFT - 10) / max(total, 1)
    title = f"Candidate boundaries of {len(classes)} classes of groups over {total:,} tokens; the joint hit is {joint:,}"
    out = [
        f'<svg class="strips" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{title}">',
    ]
    for at, found in enumerate(classes):
        y = 24 + at * ROW
        out.append(f'<text x="{LEFT - 8}" y="{y + 17}" text-anchor="end">{Markup.escape(_cut(found.name))}</text>')
        for stretch in words.stretches(found):
            first = LEFT + (stretch.first - found.unit) * scale
            width = max((stretch.last - stretch.first + found.unit) * scale, 1.5)
            sign = words.SIGNS[stretch.rule]
            where = f"{stretch.last:,}" if stretch.count == 1 else f"{stretch.first:,} to {stretch.last:,}"
            out.append(
                f'<rect class="s-{_css(stretch.rule)}" x="{first:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 8}">'
                f"<title>{Markup.escape(f'{found.name}, {where}: {stretch.rule}, {stretch.text}')}</title></rect>"
            )
            if width > 11:
                out.append(f'<text x="{first + width / 2:.1f}" y="{y + 16}" text-anchor="middle">{Markup.escape(sign)}</text>')
    x = LEFT + joint * scale
    out.append(f'<line class="hit" x1="{x:.1f}" y1="14" x2="{x:.1f}" y2="{height - 26}"/>')
    out.append(f'<text x="{min(x, WIDTH - 120):.1f}" y="11" class="hit">joint hit {joint:,}</text>')
    out.append(f'<text x="{LEFT}" y="{height - 8}">0</text>')
    out.append(f'<text x="{WIDTH - 10}" y="{height - 8}" text-anchor="end">{total:,} tokens</text>')
    out.append("</svg>")
    return "".join(out)


def _css(rule: str) -> str:
    return rule.lower().replace(" ", "-")


def _cut(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:21]}..."


def _film(answer: Answer) -> Markup | None:
    """Return the data of the player, None where the pool is too large to be looked at block by block."""
    if answer.run is None or not answer.run.moments:
        return None
    moments = answer.run.moments
    film = films.film(answer.config, moments)
    said = [lines.answer_text(examples.outcome_of(moment)) for moment in moments]
    return Markup(page.embedded(page.played(film, said, "the lookup", wrong=False)))
