"""What ties a lemma to the model: each of its formulas is compared with the function that it stands for, on many values.

Z3 proves formulas. Where a formula is not the function, the lemma is no proof of anything. So `kvproof prove` asks the tie of a
lemma beside its twins, and compares with the function as it is then: a fault that is planted in the model reaches it.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kvproof.proofs.lemma import Formulas, Lemma
from kvproof.proofs.planting import Patch, rebound
from kvproof.proofs.verdicts import Said, Verdict

Function = Callable[..., Any]

Cases = Callable[[Function], Sequence[Any]]
"""Makes the values on which a function is compared with its formula; always the same, and with no fault planted."""

Difference = Callable[[str, Any, Function, Function], str]
"""Says how a formula and a function, of this name, differ on a case; empty where they do not."""


def ask(lemma: Lemma, cases: Cases, difference: Difference, patches: tuple[Patch, ...] = ()) -> Said:
    """Compare the formulas of a lemma with their functions, with some names of the model rebound meanwhile.

    Refuted: a formula and its function differ, and the values are told. Raised: the function or the formula raised.
    Undetermined: there is nothing to compare, or the values would not tell one of the lemma's wrong formulas from the function
    either.
    """
    began = time.process_time()
    functions = {function.__name__: function for function in lemma.about.of}
    prepared = {name: cases(functions[name]) for name in lemma.formulas}
    compared = _Compared(prepared, difference)
    with rebound(patches):
        now = {name: getattr(importlib.import_module(functions[name].__module__), name) for name in prepared}
        verdict, detail = compared.with_(lemma.formulas, now)
        if verdict is Verdict.CONFIRMED and not patches:
            blind = [fault for fault, wrong in lemma.faulty.items() if compared.with_(wrong, now)[0] is not Verdict.REFUTED]
            if blind:
                verdict, detail = Verdict.UNDETERMINED, f"the values do not tell {blind[0]!r} from the model"
    return Said(verdict, detail, time.process_time() - began)


class _Compared:
    """The values of a lemma's functions, and how they are compared."""

    def __init__(self, prepared: dict[str, Sequence[Any]], difference: Difference) -> None:
        self.prepared = prepared
        self.difference = difference

    def with_(self, formulas: Formulas, functions: dict[str, Function]) -> tuple[Verdict, str]:
        """Compare some formulas with functions."""
        empty = [name for name in formulas if not self.prepared[name]]
        if empty or not formulas:
            return Verdict.UNDETERMINED, f"nothing was compared with {', '.join(empty) or 'the model'}"
        for name, formula in formulas.items():
            try:
                found = next(self._differences(name, formula, functions[name]), "")
            except Exception as error:
                return Verdict.RAISED, f"{type(error).__name__}: {error} (when {name} was compared)"
            if found:
                return Verdict.REFUTED, found
        return Verdict.CONFIRMED, f"{sum(len(self.prepared[name]) for name in formulas):,} values compared"

    def _differences(self, name: str, formula: Function, function: Function) -> Any:
        found: Iterable[str] = (self.difference(name, case, formula, function) for case in self.prepared[name])
        return (said for said in found if said)
