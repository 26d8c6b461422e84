"""What is said of the host tier and of divergent hits, in words."""

from __future__ import annotations

from itertools import groupby

from attrs import frozen

from kvproof.spec.explain import words
from kvproof.spec.explain.answer import Answer
from kvproof.spec.explain.divergence import Divergence
from kvproof.spec.explain.host_facts import Stored
from kvproof.spec.explain.hosts import HostAnswer, HostLookup, chunks_agree

HOW = {
    "handoff": "handed over state (T24)",
    "scan": "scan of the table (T26)",
    "tail": "tail of the prompt (T27)",
    "lazy": "near reuse on the device (T33)",
}
DEVICE = {"kept": "as it is", "gone": "gone"}


@frozen(slots=True)
class StoredLine:
    """Neighbouring stores of one moment, way and group: boundaries, device blocks and host blocks in words."""

    when: str
    group: str
    boundaries: str
    how: str
    device: str
    host: str


def stored_lines(answer: Answer, host: HostAnswer) -> tuple[StoredLine, ...]:
    """Return what was stored, neighbours of one moment, way and group put together."""
    return tuple(
        StoredLine(
            when=when(stored[0]),
            group=answer.rows[stored[0].key[1]].name,
            boundaries=ranges(tuple(item.boundary for item in stored)),
            how=HOW[stored[0].how],
            device=ranges(tuple(item.device for item in stored)),
            host=ranges(tuple(item.host for item in stored)),
        )
        for _, run in groupby(host.stored, key=lambda item: (item.request, item.start, item.end, item.how, item.key[1]))
        if (stored := list(run))
    )


def nothing_stored(answer: Answer, host: HostAnswer) -> str:
    """Return why nothing was stored and, in lazy mode, which options change it."""
    run, question = answer.run, answer.question
    if run is None or run.host is None or host.mode != "lazy":
        return "nothing was stored"
    if not run.host.known:
        return "nothing was stored: no block of the device has a key"
    walk = f"lazy mode copies a block when a step finds it among the next {host.target:,} blocks to be reused (T33)"
    if not question.between:
        return (
            f"nothing was stored: {walk}. No step found one with a key while the first prompt ran, and none ran after it: "
            "--between N lets another prompt run, --blocks B makes the pool smaller, so that it "
            "comes near to the first one's blocks"
        )
    return (
        f"nothing was stored: {walk}. The pool of {answer.config.num_blocks:,} blocks is so large that no block with a key "
        f"came that near: --blocks B makes it smaller, --between N (now {question.between:,}) lets a longer prompt run"
    )


def when(stored: Stored) -> str:
    """Return when a block was chosen."""
    who = "first prompt" if stored.request == 0 else "prompt in between"
    return f"{who}, at its end" if stored.start == stored.end else f"{who}, {stored.start:,} to {stored.end:,}"


def ranges(numbers: tuple[int, ...]) -> str:
    """Return numbers in words: single ones, or runs with an equal distance as first, last and distance."""
    parts: list[str] = []
    rest = list(numbers)
    while rest:
        step = rest[1] - rest[0] if len(rest) > 1 else 0
        length = 1
        while length < len(rest) and rest[length] - rest[length - 1] == step:
            length += 1
        if length < 3:
            length = 1
        run, rest = rest[:length], rest[length:]
        every = f" every {step:,}" if step != 1 else ""
        parts.append(f"{run[0]:,}" if length == 1 else f"{run[0]:,} to {run[-1]:,}{every}")
    return ", ".join(parts) or "nothing"


def holdings(host: HostAnswer) -> str:
    """Return what the host has of the second prompt's tokens, class by class."""
    held = "; ".join(f"{name}: {ranges(boundaries)}" for name, boundaries in host.holds)
    others = f"; and {words.count(host.others, 'key')} of other tokens" if host.others else ""
    return f"{held}{others}"


def settings(host: HostAnswer) -> str:
    """Return the host tier's settings in words."""
    walk = f", the walk looks at the next {host.target:,} blocks to be reused" if host.target else ""
    return f"{host.mode}, {host.blocks:,} blocks and one of them null{walk}; hits end at multiples of {host.alignment:,}"


def branch(found: HostLookup) -> str:
    """Return which branch of T14 the two offers took, in words."""
    asked, tail = found.asked, found.asked.local - found.asked.behind
    if asked.accepted.branch == "behind the hit":
        return "accepted: the local hit ends with a scheduler block (T14.3)"
    if asked.accepted.branch == "tail replaced":
        return f"accepted: {asked.offered:,} tokens reach further than the local tail of {tail:,}, which is given up (T14.3)"
    if asked.accepted.branch == "tail kept":
        return f"not taken: {asked.offered:,} tokens reach no further than the local tail of {tail:,}, which stays (T14.3)"
    if asked.accepted.branch == "looked up anew":
        return "nothing taken: the common hit replaces the divergent one (T14.4)"
    return "nothing offered"


def cause(answer: Answer, lookup: HostLookup) -> str:
    """Return why the host offers what it offers, in sentences."""
    asked, found = lookup.asked, lookup.found
    if not chunks_agree(answer.config, asked.behind):
        return f"the host is not asked behind {asked.behind:,}: chunks of local attention do not begin there (T20.3)"
    reach = f"the host reaches {words.cause(found)}"
    if not asked.offered:
        reach = f"the host has nothing to offer behind {asked.behind:,}: {words.cause(found)}"
    if lookup.finer <= found.joint:
        return reach
    scheduler = found.config.alignment
    return f"{reach} It has {lookup.finer:,}, but in lazy mode external hits end at multiples of S = {scheduler:,} (T33)."


def divergence(found: Divergence) -> str:
    """Return what divergent hits cost or save here, in sentences."""
    if found.deep == found.common:
        return (
            "No recurrent group is behind full attention here, so a connector that serves divergent hits (T13) gets the same."
        )
    reach = f"Full attention alone reaches {found.deep:,}, with the recurrent groups {found.common:,}."
    if found.capable:
        return (
            f"{reach} Every connector serves divergent hits (T13): it is asked behind {found.behind_deep:,} instead of "
            f"{found.behind_common:,}, {words.count(found.tokens, 'token')} less to bring."
        )
    return (
        f"{reach} A connector that serves divergent hits (T13) would be asked behind {found.behind_deep:,}; here it is asked "
        f"behind {found.behind_common:,}, and {found.tokens:,} tokens that attention has are brought or computed again."
    )
