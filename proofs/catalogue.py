"""All claims and lemmas, their faulty twins, and what must come out."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from types import ModuleType

from attrs import evolve, frozen

from kvproof.proofs import claim as claims
from kvproof.proofs import shape, symbolic, tie
from kvproof.proofs.claim import About
from kvproof.proofs.lemma import Lemma
from kvproof.proofs.planting import Patch, Planted
from kvproof.proofs.shape import ClaimError
from kvproof.proofs.verdicts import Said
from kvproof.spec import distribution, faults, laws, near
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
    "outputs",
    "memory",
    "guards",
    "notices",
    "stepping",
    "pool",
    "pool_keys",
    "pool_two_keys",
    "pool_copies",
    *STEPS,
)
"""The files of claims (``claims/``), each with its faulty twins in the file of the same name in ``planted/``."""

LEMMAS: tuple[str, ...] = ("grid", "any_pool")
"""The files of lemmas (``lemmas/``)."""

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
    """Return every claim, in the order of the files. Raises ClaimError."""
    found: list[Claim] = []
    for file in FILES:
        names = shape.names(file, _source(file))
        module = _loaded("claims", file)
        for name in names:
            function = getattr(module, name)
            found.append(Claim(file, name, claims.sentence(function), claims.about(function)))
        for name, value in vars(module).items():
            if hasattr(value, claims.ATTRIBUTE) and value.__module__ == module.__name__ and name not in names:
                raise ClaimError(f"{file}.{name}", "CrossHair sees no claim in it: write its asserts at the top level")
    every_queue: tuple[Patch, ...] = ((pools := _loaded("claims", "pools_of_four"), "QUEUES", pools.EVERY_QUEUE),)
    for setting, files in WIDER.items():
        found += [
            evolve(known, setting=setting, patches=every_queue, about=evolve(known.about, deep=True))
            for known in found
            if known.file in files and not known.setting
        ]
    return tuple(found)


@cache
def all_lemmas() -> tuple[Lemma, ...]:
    """Return every lemma, in the order of the files. Raises ClaimError."""
    return tuple(lemma for file in LEMMAS for lemma in lemmas_of(file))


def lemmas_of(file: str) -> tuple[Lemma, ...]:
    """Return the lemmas of a file of lemmas. Raises ClaimError."""
    found: tuple[Lemma, ...] = _loaded("lemmas", file).LEMMAS
    return found


@cache
def everything() -> tuple[Claim | Lemma, ...]:
    """Return all claims and lemmas. Raises ClaimError if one of them is not as it must be."""
    found: tuple[Claim | Lemma, ...] = (*all_claims(), *all_lemmas())
    for file in FILES:
        names = symbolic.names(file)
        for one in planted(file):
            for name in one.refutes:
                if name not in names:
                    raise ClaimError(f"proofs/planted/{file}.py", f"{one.name!r} refutes {name!r}, but there is no such claim")
    ids = frozenset(law.id for law in laws.ALL)
    seen: set[str] = set()
    for known in found:
        if known.name in seen:
            raise ClaimError(known.name, "two claims have this name")
        seen.add(known.name)
        _check(known, ids)
    return found


def _check(known: Claim | Lemma, ids: frozenset[str]) -> None:
    """Refuse a claim or a lemma that nothing could refute. Raises ClaimError."""
    unknown = [law for law in known.about.laws if law not in ids]
    if unknown:
        raise ClaimError(known.name, f"there is no law {unknown[0]!r}")
    if not faults_of(known) and not (isinstance(known, Claim) and known.setting):
        where = "`faulty` of the lemma" if isinstance(known, Lemma) else f"proofs/planted/{known.file}.py"
        raise ClaimError(known.name, f"has no faulty twin, and what nothing refutes says nothing: write one ({where})")
    if isinstance(known, Lemma) and (_file_of(known) not in TIES or not known.formulas):
        raise ClaimError(known.name, "no formula of it is compared with a function (TIES of kvproof.proofs.catalogue)")


def _source(file: str) -> str:
    try:
        return symbolic.source(file)
    except (OSError, ValueError) as error:
        raise ClaimError(f"proofs/claims/{file}.py", f"cannot be read: {error}") from error


def _loaded(folder: str, file: str) -> ModuleType:
    """Return a module of claims, twins or lemmas. Raises ClaimError if it cannot be loaded."""
    try:
        return importlib.import_module(f"kvproof.proofs.{folder}.{file}")
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and distribution.missing_extra(error):
            raise
        said = f"cannot be loaded: {type(error).__name__}: {error}"
        raise ClaimError(f"proofs/{folder}/{file}.py", said) from error


def by_name(name: str) -> Claim | Lemma:
    """Return the claim or lemma of this name. Raises UserError that names near ones, and ClaimError."""
    return near.named("claim", name, everything(), "kvproof prove --claim list")


# --- faults -------------------------------------------------------------------------------------------------------


@cache
def planted(file: str) -> tuple[Planted, ...]:
    """Return the faulty twins of a file of claims. Raises ClaimError."""
    found: tuple[Planted, ...] = _loaded("planted", file).PLANTED
    return found


def faults_of(known: Claim | Lemma) -> tuple[str, ...]:
    """Return the names of the faults that refute a claim or a lemma; a claim in a wider setting is not asked again."""
    if isinstance(known, Lemma):
        return tuple(known.faulty)
    return () if known.setting else tuple(one.name for one in planted(known.file) if known.function in one.refutes)


def all_faults() -> dict[str, tuple[str, ...]]:
    """Return the names of all faulty twins, each with the claims and lemmas that it refutes."""
    found: dict[str, tuple[str, ...]] = {}
    for known in everything():
        for fault in faults_of(known):
            found[fault] = (*found.get(fault, ()), known.name)
    return found


def patches(known: Claim | Lemma, fault: str) -> tuple[Patch, ...]:
    """Return what a fault rebinds: a faulty twin of the claim's file or of another, or a fault of the catalogue.

    Nothing for a fault of lemmas alone, which are other formulas. Raises UserError.
    """
    for file in dict.fromkeys((*(() if isinstance(known, Lemma) else (known.file,)), *FILES)):
        for one in planted(file):
            if one.name == fault:
                return one.patches
    if fault in {name for lemma in all_lemmas() for name in lemma.faulty}:
        return ()
    twins = list(all_faults())
    if fault not in (known_ids := [one.id for one in faults.ALL]):
        raise UserError(
            near.unknown("fault", fault, [*known_ids, *twins], "kvproof faults")
            + ", and `kvproof prove --fault list` the faulty twins"
        )
    found = faults.by_id(fault)
    if not found.patches:
        raise UserError(f"{fault} is a setting of a profile, which no function shows: use kvproof check --fault {fault}")
    return found.patches


# --- ties ---------------------------------------------------------------------------------------------------------

TIES: Mapping[str, str] = {"grid": "tied_grid", "any_pool": "tied_pool"}
"""The modules of ``lemmas/`` that compare the formulas of a file of lemmas with their functions."""


def tied(known: Lemma, fault: str = "") -> Said:
    """Compare the formulas of a lemma with their functions, in which a fault may be planted. Raises UserError."""
    module = _loaded("lemmas", TIES[_file_of(known)])
    return tie.ask(known, module.cases, module.difference, patches(known, fault) if fault else ())


def _file_of(known: Lemma) -> str:
    return known.name.partition(".")[0]
