"""A counterexample as a pytest file to paste into a project: it fails as long as the law breaks, and passes once it holds.

What the model broke is run on the model, what the tensors broke on model and tensors; what an implementation broke is run on
that implementation, by a function that the reader fills in.
"""

from __future__ import annotations

import json
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
from kvproof.spec.report.legible import harmless, legible
from kvproof.spec.report.rerun import Rerun, State, run_again

WIDTH = 110

HEAD = '''"""{law}: {message}.

{sentence}

{about}
"""
'''
EXAMPLE = '''EXAMPLE = r"""
{json}"""
'''

MODEL = (
    HEAD
    + """
from kvproof.spec import counterexample, laws

"""
    + EXAMPLE
    + """

def test_{name}():
    example = counterexample.loads(EXAMPLE)
    broken = counterexample.replay(example, laws.ALL).violation
    assert broken is None, f"{{broken.law}}: {{broken.evidence.message}} {{dict(broken.evidence.values)}}"
"""
)

IMPLEMENTATION = (
    HEAD
    + """
from kvproof.spec.conformance.api import check_all_laws


def adapter():
    raise NotImplementedError("return the adapter of your implementation here")


def test_{name}():
    report = {call}
    refuted = [law for law in report.laws if law.verdict.value == "refuted"]
    assert not refuted, "; ".join(f"{{law.law}}: {{law.why}}" for law in refuted)
"""
)

TENSORS = (
    HEAD
    + """
from kvproof.gpu import differential
from kvproof.spec import counterexample

"""
    + EXAMPLE
    + """

def test_{name}():
    example = counterexample.loads(EXAMPLE)
    ran = differential.run(example.settings.config(example.profile), example.actions)
    assert ran.difference is None, ran.difference.text()
"""
)


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
    if example.engine == examples.TENSORS:
        return TENSORS.format(json=_json(evolve(example, fault="")), **values)
    if example.implementation is not None:
        call = lines.reproduce(example).replace("check_all_laws(adapter,", "check_all_laws(adapter(),")
        return IMPLEMENTATION.format(call=call, **values)
    return MODEL.format(json=_json(_mended(example)), **values)


def _json(example: Counterexample) -> str:
    """Return the exact counterexample, in which what is not legible is written as JSON can write it."""
    text = examples.dumps(example)
    return "".join(character if harmless(character) else json.dumps(character)[1:-1] for character in text)


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
    if seen.notes:
        yield f"{'Not seen here.' if seen.gone else 'Not as the file says.'} {' '.join(seen.notes)}"
    if example.engine == examples.TENSORS:
        yield from _of_tensors(example)
        return
    if example.implementation is not None:
        yield (
            f"Found on {example.implementation.adapter}. `adapter` below must return that implementation's adapter "
            "(docs/adapters.md)."
        )
        return
    if example.fault:
        yield f"It was found with a fault planted, which is taken out here: {lines.fault_text(example.fault)}."
    yield _becomes(example)
    if example.fault and seen.state is State.BREAKS:
        yield from _with_fault(example, seen)


def _of_tensors(example: Counterexample) -> Iterator[str]:
    yield "It runs model and tensors side by side, and fails as long as they differ by these actions."
    if example.fault:
        yield f"It was found with a fault planted, which is taken out here: {lines.fault_text(example.fault)}. To see it fail:"
        yield f"    with faults.planted(faults.by_id({example.fault!r})):  # from kvproof.gpu import faults"


def _becomes(example: Counterexample) -> str:
    """Return what becomes of the test, which is tried: it is run without the fault, if there is one."""
    without = "Without the fault it" if example.fault else "Here it"
    try:
        fails = examples.replay(_mended(example), all_laws.ALL).violation is not None
    except examples.CounterexampleError as error:
        return f"{without} cannot be run, so that the test fails: {error}."
    if not example.fault:
        return "It fails as long as the model breaks the law by these actions, and passes once it does not."
    return f"{without} fails, too: the code as it stands breaks the law." if fails else f"{without} passes."


def _with_fault(example: Counterexample, seen: Rerun) -> Iterator[str]:
    """Say how to see a test fail whose fault was taken out of it."""
    if seen.film is None:
        yield "With the fault planted it ends in an error: the configuration is refused."
        return
    field = _field(example)
    if field is None:
        yield "It fails where the code goes wrong as the fault does. To see that, replay the example with the fault planted:"
        yield f"    with faults.planted(faults.by_id({example.fault!r})):  # from kvproof.spec import faults"
    elif getattr(example.profile, field) != getattr(SOUND, field):
        yield (
            f"It fails where the code goes wrong as the fault does. To see that, set {field} of the profile in EXAMPLE, which "
            f"has its sound value {getattr(SOUND, field)!r} there, to {getattr(example.profile, field)!r}."
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
