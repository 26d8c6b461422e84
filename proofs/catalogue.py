"""All claims and lemmas, their faulty twins, and what must come out."""

from __future__ import annotations

import importlib
from functools import cache

from attrs import evolve, frozen

from kvproof.proofs import claim as claims
from kvproof.proofs import symbolic
from kvproof.proofs.claim import About
from kvproof.proofs.claims import pools_of_four
from kvproof.proofs.lemma import Lemma
from kvproof.proofs.planting import Patch, Planted
from kvproof.spec import faults, near
from kvproof.spec.exits import UserError

STEPS: tuple[str, ...] = (
    "steps_free",
    "steps_adopt",
    "steps_append",
    "steps_register",
    "steps_relocate",
    "steps_handoffs",
    "steps_select",
    "steps_stores",
    "steps_loads",
)
"""The files of one-step claims: each transition from any sound state of its shape, beside those of the pool."""

FILES: tuple[str, ...] = (
    "geometry",
    "ownership",
    "sizes",
    "boundaries",
    "combining",
    "lookups",
    "loading",
    "announcing",
    "chunks",
    "retaining",
    "kinds",
    "bookkeeping",
    "storing",
    "allocating",
    "pool",
    "pool_keys",
    "pool_two_keys",
    "pool_copies",
    *STEPS,
)
"""The files of claims (``claims/``), each with its faulty twins in the file of the same name in ``planted/``."""

LEMMAS: tuple[str, ...] = ("grid", "any_pool")
"""The files of lemmas (``lemmas/``)."""

EVERY_QUEUE: tuple[Patch, ...] = ((pools_of_four, "QUEUES", pools_of_four.EVERY_QUEUE),)
WIDER: dict[str, tuple[str, ...]] = {"every queue": ("pool", "pool_keys", "pool_copies")}
"""Files whose claims are confirmed once more, in a deep run, for all 16 free queues instead of the four that stand for them."""


@frozen(slots=True)
class Claim:
    """A claim: its file and function, what it is about, and in what wider setting it is asked, if in one."""

    file: str
    function: str
    sentence: str
    about: About
    setting: str = ""
    patches: tuple[Patch, ...] = ()

    @property
    def name(self) -> str:
        """The name by which a user asks for it."""
        return f"{self.file}.{self.function}" + (f"[{self.setting}]" if self.setting else "")


@cache
def all_claims() -> tuple[Claim, ...]:
    """Return every claim, in the order of the files."""
    found: list[Claim] = []
    for file in FILES:
        module = importlib.import_module(f"kvproof.proofs.claims.{file}")
        for name in symbolic.names(file):
            function = getattr(module, name)
            found.append(Claim(file, name, claims.sentence(function), claims.about(function)))
    for setting, files in WIDER.items():
        found += [
            evolve(known, setting=setting, patches=EVERY_QUEUE, about=evolve(known.about, deep=True))
            for known in found
            if known.file in files and not known.setting
        ]
    return tuple(found)


@cache
def all_lemmas() -> tuple[Lemma, ...]:
    """Return every lemma, in the order of the files."""
    return tuple(lemma for file in LEMMAS for lemma in lemmas_of(file))


def lemmas_of(file: str) -> tuple[Lemma, ...]:
    """Return the lemmas of a file of lemmas."""
    found: tuple[Lemma, ...] = importlib.import_module(f"kvproof.proofs.lemmas.{file}").LEMMAS
    return found


def everything() -> tuple[Claim | Lemma, ...]:
    """Return all claims and lemmas."""
    return (*all_claims(), *all_lemmas())


def by_name(name: str) -> Claim | Lemma:
    """Return the claim or lemma of this name. Raises UserError that names near ones."""
    return near.named("claim", name, everything(), "kvproof prove --claim list")


@cache
def planted(file: str) -> tuple[Planted, ...]:
    """Return the faulty twins of a file of claims."""
    found: tuple[Planted, ...] = importlib.import_module(f"kvproof.proofs.planted.{file}").PLANTED
    return found


def faults_of(known: Claim | Lemma) -> tuple[str, ...]:
    """Return the names of the faults that refute a claim or a lemma; a claim in a wider setting is not asked again."""
    if isinstance(known, Lemma):
        return tuple(known.faulty)
    return () if known.setting else tuple(one.name for one in planted(known.file) if known.function in one.refutes)


def patches(known: Claim, fault: str) -> tuple[Patch, ...]:
    """Return what a fault rebinds: a faulty twin of the claim's file or of another, or a fault of the catalogue.

    Raises UserError.
    """
    for file in dict.fromkeys((known.file, *FILES)):
        for one in planted(file):
            if one.name == fault:
                return one.patches
    try:
        found = faults.by_id(fault)
    except faults.FaultError as error:
        raise UserError(str(error)) from error
    if not found.patches:
        raise UserError(f"{fault} is a setting of a profile, which no function shows: use kvproof check --fault {fault}")
    return found.patches
