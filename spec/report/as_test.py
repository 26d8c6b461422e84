"""A counterexample as a pytest file to paste into a project: it fails as long as the law breaks, and passes once it holds.

What the model broke is run on the model; what an implementation broke is run on that implementation, by a function that the
reader fills in.
"""

from __future__ import annotations

import re
import textwrap

from attrs import evolve

from kvproof.spec import counterexample as examples
from kvproof.spec.counterexample import Counterexample
from kvproof.spec.report import lines

MODEL = '''"""{law}: {message}.

{sentence}
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

Found on {adapter}. `adapter` below must return that implementation's adapter (docs/adapters.md).
"""

from kvproof.spec.conformance import check_all_laws


def adapter():
    raise NotImplementedError("return the adapter of your implementation here")


def test_{name}():
    report = {call}
    refuted = [law for law in report.laws if law.verdict.value == "refuted"]
    assert not refuted, "; ".join(f"{{law.law}}: {{law.why}}" for law in refuted)
'''


def render(example: Counterexample) -> str:
    """Return the text of the file. A planted fault is left out: the test is about the code as it stands."""
    values = {
        "law": example.law,
        "message": example.message,
        "sentence": textwrap.fill(example.sentence, 110),
        "name": name_of(example),
    }
    if example.implementation is not None:
        call = lines.reproduce(example).replace("check_all_laws(adapter,", "check_all_laws(adapter(),")
        return IMPLEMENTATION.format(adapter=example.implementation.adapter, call=call, **values)
    return MODEL.format(json=examples.dumps(evolve(example, fault="")), **values)


def name_of(example: Counterexample) -> str:
    """Return the name of the test without its prefix: the law, and the message as a name."""
    words = re.sub(r"[^a-z0-9]+", "_", f"{example.law} {example.message}".lower()).strip("_")
    return words[:80].rstrip("_")
