"""A finished run of `check`, `explore`, `conform` or of an adapter as one kind of value, read from the JSON that each writes.

The index page and the comparison of two runs look at this and at nothing else.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import Factory, field, frozen, validators

from kvproof.spec import counterexample as examples
from kvproof.spec.exits import UserError

SUMMARIES = ("check.json", "explore.json", "certificate.json", "conform.json", "gpu.json")
"""What a folder of results is known by."""


class RunError(UserError):
    """A file or folder holds no results of a run."""


@frozen(slots=True)
class LawRow:
    """What a run says of a law: its verdict, and how often it was judged."""

    verdict: str = field(validator=validators.instance_of(str))
    judged: int


@frozen(slots=True)
class ScopeRow:
    """What a run covered of a scope, in words; ``size`` is what a comparison looks at."""

    verdict: str = field(validator=validators.instance_of(str))
    size: str
    leaves_out: tuple[str, ...] = ()


@frozen(slots=True)
class Found:
    """A counterexample: the law, the fault that was planted, where it was found, in how many actions, what is wrong."""

    law: str
    fault: str
    scope: str
    length: int
    message: str


@frozen(slots=True)
class Run:
    """A finished run. ``faults`` says how each was found, "" for not at all; ``releases`` per version the laws' verdicts.

    ``planted`` are the faults that were planted into the whole run, which is then to be refuted. ``subject`` is the
    implementation that was judged, "" for the model. ``unit`` is what ``scopes`` lists; ``said`` says in a sentence what the
    verdict is worth.
    """

    kind: str
    verdict: str = field(validator=validators.instance_of(str))
    kvproof: str = ""
    laws: Mapping[str, LawRow] = Factory(dict)
    faults: Mapping[str, str] = Factory(dict)
    scopes: Mapping[str, ScopeRow] = Factory(dict)
    releases: Mapping[str, Mapping[str, str]] = Factory(dict)
    situations: tuple[int, int] | None = None
    recordings: int = 0
    problems: tuple[str, ...] = ()
    found: tuple[Found, ...] = ()
    planted: tuple[str, ...] = ()
    subject: str = ""
    unit: str = "scope"
    said: str = ""

    @property
    def name(self) -> str:
        """The kind of run, with the fault that was planted into all of it."""
        if not self.planted:
            return self.kind
        return f"{self.kind} with {self.planted[0] if len(self.planted) == 1 else 'every fault'} planted"


def read(path: Path) -> Run:
    """Read a summary file, or that of a folder. Raises RunError."""
    file = path
    if path.is_dir():
        there = [path / name for name in SUMMARIES if (path / name).is_file()]
        there = there or of_adapters(path)
        if not there:
            raise RunError(
                f"{path}: holds none of {', '.join(SUMMARIES)} and no report on an adapter: name the folder of --report or "
                "--out, or a file"
            )
        if len(there) > 1:
            raise RunError(f"{path}: holds {len(there)} runs: name one of {', '.join(file.name for file in there)}")
        file = there[0]
    try:
        document = json.loads(file.read_bytes())
        return of(document)
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(
            f"{file}: cannot be read as the results of a run: {getattr(error, 'strerror', None) or error}"
        ) from error
    except (KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"{file}: is no summary of kvproof check, explore or conform ({type(error).__name__}: {error})"
        ) from error


def of_adapters(folder: Path) -> list[Path]:
    """Return the reports on adapters in a folder, which are called after them."""
    return [file for file in sorted(folder.glob("*.json")) if _is_of_adapter(file)]


def _is_of_adapter(file: Path) -> bool:
    try:
        document = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and {"adapter", "laws", "scopes"} <= set(document)


def of(document: Mapping[str, Any]) -> Run:
    """Return the run of a summary. Raises KeyError, TypeError, AttributeError or ValueError for anything else."""
    if document.get("format") == examples.FORMAT:
        raise ValueError("it is a counterexample: name the summary beside it, or their folder")
    if document.get("format") == "kvproof-certificate":
        return _explored(document)
    if "releases" in document:
        return _conformed(document)
    if "adapter" in document:
        return _adapter(document)
    if "torch" in document:
        return _tensors(document)
    return _checked(document)


def _found(items: Sequence[Any]) -> tuple[Found, ...]:
    loaded = [examples.loads(json.dumps(item)) for item in items]
    return tuple(Found(one.law, one.fault, one.scope, len(one.actions), one.message) for one in loaded)


def _checked(document: Mapping[str, Any]) -> Run:
    judged: Counter[str] = Counter()
    for counts in document["premises"].values():
        judged.update(counts)
    found = _found(document["counterexamples"])
    # With a fault planted the rows are those of its laws, and nothing else was judged.
    planted = () if document["premises"] else tuple(one["id"] for one in document["faults"])
    broken = {one.law for one in found if not one.fault}
    laws = {law: LawRow(_verdict(law in broken, count), count) for law, count in sorted(judged.items())}
    laws |= {law: LawRow("undetermined", 0) for law in document.get("premise_never_true") or () if law not in laws}
    if planted:
        laws = {row["family"]: LawRow(row["verdict"], row["premises"]) for row in document["rows"]}
    return Run(
        kind="check",
        verdict=document["verdict"],
        kvproof=document.get("kvproof", ""),
        laws=laws,
        faults={
            one["id"]: _killed(one["killed"], document["faults_survived"].get(one["id"], ())) for one in document["faults"]
        },
        scopes={} if planted else _engines(document.get("rows", ())),
        situations=(sum(1 for count in document["witnesses"].values() if count), len(document["situations_never_reached"])),
        recordings=document["recordings"],
        problems=tuple(document["problems"]),
        found=found,
        planted=planted,
        unit="engine",
        said="" if planted else TESTED.get(document["verdict"], ""),
    )


TESTED = {
    "holds": "Random walks and Hypothesis refuted nothing: that is a test, and no proof.",
    "undetermined": "Nothing is refuted, and not everything could be judged: that is no pass.",
}


def _killed(killed: Mapping[str, str], missing: Sequence[str]) -> str:
    """Say which laws found a fault and where, and which of those that should did not; "" if none did."""
    if not killed:
        return ""
    said = ", ".join(f"{law} in {scope}" for law, scope in sorted(killed.items()))
    return said + (f"{NOT_BY}{', '.join(missing)})" if missing else "")


NOT_BY = " (not by "


def _engines(rows: Sequence[Mapping[str, Any]]) -> dict[str, ScopeRow]:
    """Return what each engine of a check did; the rows are families of laws, all over the same steps."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["family"] not in ("faults", "model"):
            found.setdefault(row["engine"], []).append(row)
    return {
        engine: ScopeRow(
            min((row["verdict"] for row in of_engine), key=WORST.index),
            f"{counted(max(row['steps'] for row in of_engine), 'step')}, "
            f"{counted(len(of_engine), 'family', 'families')} of laws",
        )
        for engine, of_engine in found.items()
    }


WORST = ("refuted", "undetermined", "holds")


def counted(number: int, what: str, plural: str = "") -> str:
    """Return a number and what is counted, in the plural unless it is one."""
    return f"{number:,} {what if number == 1 else plural or what + 's'}"


def _explored(document: Mapping[str, Any]) -> Run:
    found = _found(document["counterexamples"])
    broken = {one.law for one in found}
    scopes = document["scopes"]
    # A search that ends at a violation has not judged the other laws on what it did not come to.
    unseen = any(one["verdict"] == "refuted" for one in scopes)
    return Run(
        kind="explore",
        verdict=document["verdict"],
        kvproof=document["kvproof"],
        laws={
            law: LawRow(_verdict(law in broken, 0 if unseen else count), count) for law, count in document["premises"].items()
        },
        faults={
            one["fault"]: f"{one['found']['law']} in {one['found']['scope']} after {counted(one['found']['length'], 'action')}"
            if one["found"]
            else ""
            for one in document["faults"]
        },
        scopes={
            one["scope"] + (f" ({one['fault']} planted)" if one["fault"] else ""): ScopeRow(
                one["verdict"],
                f"{counted(one['orbits'], 'orbit')}, {counted(one['edges'], 'edge')}, {one['end']}",
                tuple(one["leaves_out"]),
            )
            for one in scopes
        },
        situations=(len(document["witnesses"]), len(document["situations_never_reached"] or ())),
        problems=tuple(document["problems"]),
        found=found,
        planted=tuple(dict.fromkeys(one["fault"] for one in scopes if one["fault"])),
        said=_exhausted(document["verdict"], scopes),
    )


def _exhausted(verdict: str, scopes: Sequence[Mapping[str, Any]]) -> str:
    """Say what it is worth that laws hold: only a graph that was finished says something about every behaviour."""
    ends = {one["end"] for one in scopes}
    if verdict != "holds" or any(one["fault"] for one in scopes):
        return ""
    if ends == {"complete"}:
        return "Every behaviour within the bounds of these scopes was seen; what each leaves out stands beside it."
    if ends == {"sampled"}:
        return "Random runs within the bounds of these scopes were seen, and not every behaviour: that is a test, and no proof."
    return "Not every behaviour within the bounds was seen: beside each scope stands how its search ended."


def _conformed(document: Mapping[str, Any]) -> Run:
    releases = {one["release"]: {row["law"]: row["verdict"] for row in one["laws"]} for one in document["releases"]}
    return Run(
        kind="conform",
        verdict=document["verdict"],
        releases=releases,
        problems=tuple(one["unusable"] for one in document["releases"] if one["unusable"]),
        found=tuple(
            Found(finding["law"], "", f"vLLM {one['release']}", finding["operation"], finding["message"])
            for one in document["releases"]
            for finding in one["findings"]
        ),
    )


def _adapter(document: Mapping[str, Any]) -> Run:
    laws = {one["law"]: LawRow(one["verdict"], one["judged"]) for one in document["laws"]}
    verdicts = {row.verdict for row in laws.values()}
    return Run(
        kind=f"conform adapter {document['adapter']}",
        kvproof=document.get("kvproof", ""),
        verdict="refuted" if "refuted" in verdicts else "undetermined" if "undetermined" in verdicts else "holds",
        laws=laws,
        scopes={
            one["name"]: ScopeRow(
                "skipped" if one["skipped"] else "walked",
                one["skipped"] or f"{counted(one['walks'], 'walk')}, {counted(one['actions'], 'action')}",
            )
            for one in document["scopes"]
        },
        problems=tuple(document["problems"]),
        found=_found(in_order(document)),
        subject=document["adapter"],
        said=f"What {document['adapter']} showed was judged on random walks: that is a test, and no proof. Of what it does not "
        "show nothing is said: undetermined.",
    )


def in_order(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the counterexamples of a report on an adapter, in the order in which its laws are refuted."""
    return [one["counterexample"] for one in document["laws"] if one["counterexample"] is not None]


def _tensors(document: Mapping[str, Any]) -> Run:
    found = _found(document["counterexamples"])
    sources = [one["source"] for one in document["rows"]]
    caught = {one.fault: f"{one.law} in {one.scope} after {counted(one.length, 'action')}" for one in found if one.fault}
    return Run(
        kind=f"gpu on {document['device']}",
        verdict=document["verdict"],
        kvproof=document.get("kvproof", ""),
        scopes={
            one["source"]: ScopeRow(
                one["verdict"],
                f"{counted(one['runs'], 'run')}, {counted(one['actions'], 'action')}, {counted(one['outputs'], 'output')}",
            )
            for one in document["rows"]
        },
        faults={**caught, **dict.fromkeys(document["faults_survived"], "")},
        found=found,
        planted=tuple(source.removeprefix("fault ") for source in sources if source.startswith("fault ")),
        unit="source",
        said="Model and tensors were equal on the runs that were tried: that is a test, and no proof."
        if document["verdict"] == "holds"
        else "",
    )


def _verdict(broken: bool, judged: int) -> str:
    return "refuted" if broken else "holds" if judged else "undetermined"


# --- two runs -----------------------------------------------------------------------------------------------------------


@frozen(slots=True)
class Change:
    """Something that differs between two runs: of what, before and now ("" for: it was not there).

    ``planted``: of runs with a planted fault, in which to be refuted is what is wanted.
    """

    what: str
    name: str
    before: str
    now: str
    planted: bool = False

    @property
    def worse(self) -> bool:
        """Tell whether it is a step back: something held, was found or was covered, and is not any more."""
        if self.what == "version":
            return False
        if self.what in ("problem", "counterexample"):
            return not self.before and not (self.planted and self.what == "counterexample")
        if self.what == "fault":
            return bool(self.before) and (not self.now or (NOT_BY in self.now and NOT_BY not in self.before))
        if self.what == "number":
            return int(self.now) < int(self.before)
        before, now = (text.partition(",")[0] for text in (self.before, self.now))
        if self.planted:
            return before == "refuted" and now != "refuted"
        return now != "holds" and (before == "holds" or now == "refuted")

    def __str__(self) -> str:
        return f"{self.what} {self.name}: {self.before or 'none'} > {self.now or 'none'}"


def changes(before: Run, now: Run) -> list[Change]:
    """Return what differs between two runs of one kind. Raises RunError for runs of different kinds, or with other faults."""
    if before.name != now.name:
        raise RunError(f"a run of {before.name} and one of {now.name} cannot be compared")
    planted = bool(now.planted)
    found = _differing("version", {"of kvproof": before.kvproof}, {"of kvproof": now.kvproof})
    found += _differing("verdict", {"all": before.verdict}, {"all": now.verdict}, planted)
    found += _differing("law", _verdicts(before.laws), _verdicts(now.laws), planted)
    caught = "caught" if now.unit == "source" else ""
    found += _differing("fault", before.faults, now.faults, absent=caught)
    found += _differing(now.unit, _sizes(before), _sizes(now), planted)
    for release in dict.fromkeys((*before.releases, *now.releases)):
        found += _differing(f"vLLM {release}", before.releases.get(release, {}), now.releases.get(release, {}))
    found += _differing("number", _numbers(before), _numbers(now))
    found += _differing("problem", dict.fromkeys(before.problems, "there"), dict.fromkeys(now.problems, "there"))
    return found + _differing("counterexample", _examples(before), _examples(now), planted)


def _verdicts(rows: Mapping[str, LawRow]) -> dict[str, str]:
    return {law: row.verdict for law, row in rows.items()}


def _sizes(run: Run) -> dict[str, str]:
    return {name: f"{row.verdict}, {row.size}" for name, row in run.scopes.items()}


def _numbers(run: Run) -> dict[str, str]:
    reached = 0 if run.situations is None else run.situations[0]
    return {"of situations reached": str(reached), "of recordings replayed": str(run.recordings)}


def _examples(run: Run) -> dict[str, str]:
    """Return the lengths of counterexamples by law, fault and scope; several of one place stand together."""
    found: dict[str, list[int]] = {}
    for one in run.found:
        found.setdefault(f"{one.law}{' ' + one.fault if one.fault else ''} in {one.scope}", []).append(one.length)
    return {
        name: f"{', '.join(map(str, sorted(lengths)))} {'action' if lengths == [1] else 'actions'}"
        for name, lengths in found.items()
    }


def _differing(
    what: str, before: Mapping[str, str], now: Mapping[str, str], planted: bool = False, absent: str = ""
) -> list[Change]:
    """Return what differs by name; ``absent`` is what stands for a name that only one of them has."""
    names = dict.fromkeys((*before, *now))
    pairs = [(name, before.get(name, absent), now.get(name, absent)) for name in names]
    return [Change(what, name, one, two, planted) for name, one, two in pairs if one != two]
