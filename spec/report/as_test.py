"""A counterexample as a pytest file to paste into a project: it fails as long as the law breaks, and passes once it holds.

What the model broke is run on the model; what an implementation broke is run on that implementation, by a function that the
reader fills in.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from attrs import evolve

from kvproof.core.config import SOUND
from kvproof.spec import counterexample as examples
from kvproof.spec import faults
from kvproof.spec import laws as all_laws
from kvproof.spec.counterexample import Counterexample
from kvproof.spec.report import departure, lines
from kvproof.spec.report.legible import legible
from kvproof.spec.report.rerun import Rerun, State, run_again

WIDTH = 110

MODEL = '''"""{law}: {message}.

{sentence}

{about}
"""

from kvproof.spec import counterexample, laws

EXAMPLE = r"""
{json}"""


def test_{name}():
    example = counterexample.loads(EXAMPLE)
    broken = counterexample.replay(example, laws.ALL).violation
    assert broken is None, f"{{broken.law}}: {{broken.evidence.message}} {{dict(broken.evidence.values)}}"
'''

IMPLEMENTATION = '''"""{law}: {message}.

{sentence}

{about}
"""

from kvproof.spec.conformance import check_all_laws


def adapter():
    raise NotImplementedError("return the adapter of your implementation here")


def test_{name}():
    report = {call}
    refuted = [law for law in report.laws if law.verdict.value == "refuted"]
    assert not refuted, "; ".join(f"{{law.law}}: {{law.why}}" for law in refuted)
'''


def render(example: Counterexample, seen: Rerun | None = None) -> str:
    """Return the text of the file. A planted fault is left out, and it says so: the test is about the code as it stands."""
    seen = seen or run_again(example)
    here = seen.here
    values = {
        "law": _quoted(here.law),
        "message": _quoted(here.message or "not seen here"),
        "sentence": textwrap.fill(_quoted(here.sentence), WIDTH),
        "name": name_of(here),
        "about": "\n\n".join(_filled(text) for text in _about(example, seen)),
    }
    if example.implementation is not None:
        call = lines.reproduce(example).replace("check_all_laws(adapter,", "check_all_laws(adapter(),")
        return IMPLEMENTATION.format(call=call, **values)
    return MODEL.format(json=examples.dumps(_mended(example)), **values)


def _mended(example: Counterexample) -> Counterexample:
    """Return the example of the test; a fault that is not known here can only be left out."""
    try:
        return departure.without_fault(example)
    except faults.FaultError:
        return evolve(example, fault="")


def _field(example: Counterexample) -> str | None:
    """Return the profile field that the planted fault is, None if it replaces functions, or there is none."""
    fault = examples.fault_of_model(example)
    try:
        planted = faults.by_id(fault).profile if fault else None
    except faults.FaultError:
        return None
    return None if planted is None else planted[0]


def _about(example: Counterexample, seen: Rerun) -> Iterator[str]:
    """Yield what a reader of the file has to know, a paragraph each."""
    if example.implementation is not None:
        yield (
            f"Found on {example.implementation.adapter}. `adapter` below must return that implementation's adapter "
            "(docs/adapters.md)."
        )
        return
    if seen.notes:
        yield f"{'Not seen here.' if seen.gone else 'Not as the file says.'} {' '.join(seen.notes)}"
    if seen.state is State.UNJUDGED:
        yield "As long as that is so, the test fails, too: it runs the same example."
        return
    if not example.fault:
        yield "It fails as long as the model breaks the law by these actions, and passes once it does not."
        return
    yield f"It was found with a fault planted, which is taken out here: {lines.fault_text(example.fault)}."
    if example.engine == examples.TENSORS:
        yield "The fault is one of the tensors, which this test does not run: it passes as long as the model keeps the law."
        return
    yield _without(example)
    field = _field(example)
    if field is not None and getattr(example.profile, field) == getattr(SOUND, field):
        return
    if field is None:
        yield "It fails where the code goes wrong as the fault does. To see that, replay the example with the fault planted:"
        yield f"    with faults.planted(faults.by_id('{example.fault}')):  # from kvproof.spec import faults"
        return
    yield (
        f"It fails where the code goes wrong as the fault does. To see that, set {field} of the profile in EXAMPLE, which has "
        f"its sound value {getattr(SOUND, field)!r} there, to {getattr(example.profile, field)!r}."
    )


def _without(example: Counterexample) -> str:
    """Return what becomes of the test without the fault, which is tried."""
    try:
        passes = examples.replay(_mended(example), all_laws.ALL).violation is None
    except examples.CounterexampleError as error:
        return f"Without the fault it cannot be run, so that it fails: {error}."
    return (
        "Without the fault it passes." if passes else "Without the fault it fails, too: the code as it stands breaks the law."
    )


def _filled(text: str) -> str:
    """Return a paragraph for a docstring; lines of code, which are indented, stay as they are."""
    return legible(text) if text.startswith(" ") else textwrap.fill(_quoted(text), WIDTH, break_on_hyphens=False)


def _quoted(text: str) -> str:
    """Return text that may stand in a docstring: nothing in it ends the string or escapes anything."""
    return legible(text).replace("\\", "/").replace('"', "'")


def name_of(example: Counterexample) -> str:
    """Return the name of the test without its prefix: the law, and the message as a name."""
    words = re.sub(r"[^a-z0-9]+", "_", f"{example.law} {example.message}".lower()).strip("_")
    return words[:80].rstrip("_")
