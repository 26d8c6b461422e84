"""An answer in words: names of sizes here and in the engine, stretches of candidates, bars, and sentences."""

from __future__ import annotations

from itertools import groupby

from attrs import frozen

from kvproof.core import kinds
from kvproof.spec.explain import rules
from kvproof.spec.explain.answer import Answer, ClassAnswer
from kvproof.spec.explain.rules import Reason

BAR_CELLS = 64

ENGINE_KINDS: dict[str, str] = {
    "full_attention": "FullAttentionSpec, MLAAttentionSpec",
    "sliding_window": "SlidingWindowSpec",
    "chunked_local": "ChunkedLocalAttentionSpec",
    "mamba_align": "MambaSpec, mode align",
    "mamba_stable": "MambaSpec, mode all",
    "scratch": "circular buffer",
}
"""Kind of group -> what vLLM calls it."""

SIGNS: dict[str, str] = {
    rules.HIT: "H",
    rules.DIVERGENT: "+",
    rules.CONNECTOR: "+",
    rules.OTHER_GROUP: "+",
    rules.SHORTER: "o",
    rules.EAGLE: "d",
    rules.EVICTED: "x",
    rules.GAP: "g",
    rules.HOST_EVICTED: "e",
    rules.HOST_FULL: "f",
    rules.LAZY: "z",
    rules.NOT_STORED: "u",
    rules.RETENTION: "r",
    rules.NO_KEY: "k",
    rules.NO_SNAPSHOT: "s",
    rules.ALIGNMENT: "a",
    rules.NOT_SHARED: "n",
    rules.CAP: "c",
    rules.LOCAL: "l",
}
"""Rule -> its letter in a bar; where several candidates fall into one cell the first of this list is drawn."""
NOTHING = "."

SIGN_WORDS: dict[str, str] = {
    "H": "the joint hit",
    "+": "this group could resume here, another cannot",
    "o": "could resume here, but the hit is longer",
    "d": "given up (EAGLE drop)",
    "x": "evicted",
    "g": "on the host, a block before it is not",
    "e": "evicted from the host",
    "f": "host full",
    "z": "not copied yet (lazy)",
    "u": "not stored",
    "r": "not kept (retention)",
    "k": "no key inside a block",
    "s": "no snapshot",
    "a": "not aligned",
    "n": "not computed by the first prompt",
    "c": "above n-1",
    "l": "on the device",
    NOTHING: "no candidate",
}


def count(number: int, what: str) -> str:
    """Return a number of things in words; ``what`` is one of them."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def cut(number: int, most: int) -> int:
    """Return how many of ``number`` lines are shown where ``most`` are wanted: a single one is never left out."""
    return number if number <= most + 1 else most


@frozen(slots=True)
class Size:
    """A size of a configuration: its symbol in docs/semantics.md, the engine's name, the value in words, what it is."""

    symbol: str
    engine: str
    value: str
    what: str


def sizes(answer: Answer) -> tuple[Size, ...]:
    """Return the sizes that all groups share, with the names that vLLM has for them."""
    config = answer.config
    retention = "dense" if config.retention is None else f"{config.retention:,}" + (" (sparse)" if not config.retention else "")
    return (
        Size("N", "decode_context_parallel_size", f"{config.dcp_size:,}", "ranks that share the tokens of a sharded group"),
        Size("L", "max_model_len", f"{config.max_model_len:,}", "longest request"),
        Size("S", "scheduler_block_size", f"{config.scheduler_block_size:,}", "least common multiple of all E"),
        Size("H", "hash_block_size, prefix_match_unit", f"{config.hash_block_size:,}", "tokens between two prefix hashes"),
        Size("A", "cache_hit_alignment_tokens", f"{config.alignment:,}", "a hit ends at a multiple of it: H or S"),
        Size(
            "gate",
            "enable_partial_hash_hits",
            "open" if config.fine_grained else "closed",
            "A is H if it is open, else S (fine-grained hits)",
        ),
        Size("retention", "retention_interval", retention, "which states and window blocks keep their keys (2.9)"),
        Size("EAGLE", "use_eagle", "yes" if config.use_eagle else "no", "hits give up one unit for the drafter (T35)"),
        *(
            Size(
                "connector",
                "supports_divergent_local_hybrid_hits",
                "yes" if connector.divergent.value else "no",
                f"{connector.name}: may attention hit deeper than the recurrent groups? (T13)",
            )
            for connector in answer.deployment.settings.connectors
        ),
        *_host_size(answer),
    )


def _host_size(answer: Answer) -> tuple[Size, ...]:
    offload = answer.config.offload
    if offload is None:
        return ()
    return (Size("host", "lazy_offload", offload.mode, "when blocks are copied to the host tier: eager or lazy (T26, T33)"),)


def why_gate(answer: Answer) -> str:
    """Return in a sentence why the gate of fine-grained hits is open or closed."""
    failed = [condition for condition in answer.conditions if not condition.holds]
    if not failed:
        return "open: all four conditions hold"
    if answer.forced and len(failed) == 1:
        return "closed because you asked for it: condition 2 fails"
    return "closed: " + "; ".join(f"condition {item.number} fails ({item.values})" for item in failed)


def why_closed(answer: Answer, closed: Answer) -> str:
    """Return in a sentence why the closed gate gives the hit it gives, compared with the open one."""
    step = closed.config.alignment
    if closed.joint > answer.joint:
        return f"other states are kept then, and one of them lies at {closed.joint:,}, in what the prompts share"
    if not answer.joint:
        return "nothing is hit either way"
    if closed.joint == answer.joint:
        return f"{answer.joint:,} is a multiple of S = {step:,}, so the gate makes no difference here"
    lost = f"hits then end at multiples of S = {step:,} only, and {answer.joint:,} is none"
    nearest = answer.joint - answer.joint % step
    if closed.joint >= nearest:
        return lost
    reasons = ((found.name, found.candidates[nearest // found.unit - 1]) for found in closed.classes)
    name, reason = next(item for item in reasons if SIGNS[item[1].rule] not in "+oH")
    return f"{lost}; at {nearest:,} {name} has nothing: {reason.rule}, {reason.text}"


def gate_line(answer: Answer, closed: Answer | None) -> str | None:
    """Return what the gate did to the hit, in a sentence; None if it is open and was not compared with a closed one."""
    config = answer.config
    if closed is not None:
        if closed.joint == answer.joint:
            return f"A closed gate would give the same hit: {why_closed(answer, closed)}."
        return (
            f"{answer.joint:,} with fine-grained hits; a closed gate would give {closed.joint:,}: {why_closed(answer, closed)}."
        )
    if config.fine_grained:
        return None
    if config.hash_block_size == config.alignment:
        return f"H = S = {config.alignment:,}, so the gate makes no difference."
    reachable = _reachable(answer)
    if answer.joint + config.hash_block_size > reachable:
        return f"An open gate would not give more: no multiple of H = {config.hash_block_size:,} is left up to {reachable:,}."
    return f"The gate is {why_gate(answer)}: hits end at multiples of S = {config.alignment:,}."


def _reachable(answer: Answer) -> int:
    """Return above which token count no hit can end: n-1, and what the prompts share if some class needs every block."""
    limit = answer.question.resend - 1
    needs_all = any(kinds.of(found.kind).CAPABILITIES.prefix_closed for found in answer.classes)
    return min(limit, answer.question.shared) if needs_all else limit


def share(answer: Answer) -> str:
    """Return the hit as a part of the second prompt; a part is never rounded to nothing or to all."""
    part = 100 * answer.joint / answer.question.resend
    if part > 99.9:
        return "over 99.9 %"
    return "under 0.1 %" if 0 < part < 0.1 else f"{part:.1f} %"


# --- the cause of the hit -----------------------------------------------------------------------------------------

_COULD = frozenset((rules.HIT, rules.SHORTER, rules.OTHER_GROUP, rules.CONNECTOR, rules.DIVERGENT))


def cause(answer: Answer) -> str:
    """Return why the joint hit ends where it does: which classes ended it, where, and by which rule of each."""
    deepest = max(found.hit for found in answer.classes)
    joint, step = answer.joint, answer.config.alignment
    if deepest <= joint:
        return f"{joint:,} because {_behind(answer, answer.classes)}."
    ahead = tuple(found for found in answer.classes if found.hit == deepest)
    between = range(joint + step, deepest + 1, step)
    parts = []
    for found in answer.classes:
        lacking = [(at, why) for at in between if (why := _at(found, at)).rule not in _COULD]
        if lacking:
            everywhere = f"anywhere above it up to {deepest:,}: " if 1 < len(lacking) == len(between) else ""
            parts.append(f"{found.name} cannot resume {everywhere}{_listed(lacking)}")
    able = " and ".join(found.name for found in ahead)
    return f"{joint:,} because {'; and '.join(parts)}. {able} alone could resume at {deepest:,}; {_behind(answer, ahead)}."


def _at(found: ClassAnswer, boundary: int) -> Reason:
    return found.candidates[boundary // found.unit - 1]


def _listed(lacking: list[tuple[int, Reason]]) -> str:
    """Return boundaries by their rule, each with the case at hand: that of the last one if they differ."""
    by_rule: dict[str, list[tuple[int, Reason]]] = {}
    for at, why in lacking:
        by_rule.setdefault(why.rule, []).append((at, why))
    parts = []
    for rule, items in by_rule.items():
        first, (last, why) = items[0][0], items[-1]
        where = f"at {last:,}" if len(items) == 1 else f"at {len(items):,} boundaries from {first:,} to {last:,}"
        case = ", for example" if len({reason.text for _, reason in items}) > 1 else ""
        parts.append(f"{where} ({rule}{case}: {why.text})")
    return ", ".join(parts)


def _behind(answer: Answer, of: tuple[ClassAnswer, ...]) -> str:
    """Return why none of the classes goes further than its own hit, at the next boundary."""
    following = max(found.hit for found in of) + answer.config.alignment
    if following > answer.question.resend - 1:
        return f"the next boundary, {following:,}, is above n-1 = {answer.question.resend - 1:,}"
    said: dict[str, list[str]] = {}
    for found in of:
        why = _at(found, following)
        if why.rule not in _COULD:
            said.setdefault(f"({why.rule}: {why.text})", []).append(found.name)
    return f"at {following:,} " + " and ".join(f"{' and '.join(names)} cannot resume {text}" for text, names in said.items())


# --- candidates ---------------------------------------------------------------------------------------------------


@frozen(slots=True)
class Stretch:
    """Neighbouring candidates of one class with one rule: first and last boundary, how many, and why."""

    first: int
    last: int
    count: int
    rule: str
    text: str


def stretches(found: ClassAnswer) -> tuple[Stretch, ...]:
    """Return the candidates of a class with neighbours of one rule put together; where texts differ, the last is an example.

    Candidates that other classes block are put together only if the same classes block them by the same rules.
    """
    numbered = enumerate(found.candidates, 1)
    result = []
    for (rule, _), run in groupby(numbered, key=lambda item: (item[1].rule, item[1].blocked)):
        items = list(run)
        texts = {reason.text for _, reason in items}
        last = items[-1][1].text
        text = last if len(texts) == 1 else f"for example at {items[-1][0] * found.unit:,}: {last}"
        result.append(Stretch(items[0][0] * found.unit, items[-1][0] * found.unit, len(items), rule, text))
    return tuple(result)


def interesting(found: ClassAnswer, most: int) -> tuple[Stretch | int, ...]:
    """Return about ``most`` stretches: the first, those around the hit, and the last; a number says how many are left out.

    A single one is not left out: the line that says so would take its place.
    """
    every = stretches(found)
    centre = max((index for index, stretch in enumerate(every) if SIGNS[stretch.rule] in "H+"), default=len(every) - 1)
    nearest_first = sorted(range(1, len(every)), key=lambda index: (abs(index - centre) > 2, -index))
    kept = {0, *nearest_first[: most - 1]}
    shown: list[Stretch | int] = []
    for index, stretch in enumerate(every):
        alone = index not in kept and index - 1 in kept and (index + 1 in kept or index + 1 == len(every))
        if index in kept or alone:
            shown.append(stretch)
        elif isinstance(shown[-1], int):
            shown[-1] += 1
        else:
            shown.append(1)
    return tuple(shown)


def bar(found: ClassAnswer, total: int, cells: int = BAR_CELLS) -> str:
    """Return a bar over the second prompt: a letter per cell for the candidates in it, see ``SIGNS``."""
    order = {rule: rank for rank, rule in enumerate(SIGNS)}
    drawn: list[str | None] = [None] * cells
    for index, reason in enumerate(found.candidates, 1):
        cell = (index * found.unit * cells - 1) // total
        held = drawn[cell]
        if held is None or order[reason.rule] < order[held]:
            drawn[cell] = reason.rule
    return "".join(NOTHING if rule is None else SIGNS[rule] for rule in drawn)


def signs_used(bars: tuple[str, ...]) -> str:
    """Return the legend of the letters that occur in bars."""
    used = {sign for line in bars for sign in line}
    return ", ".join(f"{sign} {word}" for sign, word in SIGN_WORDS.items() if sign in used)
