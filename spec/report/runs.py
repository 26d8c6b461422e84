"""A finished run of `check`, `explore`, `conform` or of an adapter as one kind of value, read from the JSON that each writes.

The index page and the comparison of two runs look at this and at nothing else.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import Factory, frozen

from kvproof.spec import counterexample as examples
from kvproof.spec.exits import UserError

SUMMARIES = ("check.json", "explore.json", "certificate.json", "conform.json", "gpu.json")
"""What a folder of results is known by."""


class RunError(UserError):
    """A file or folder holds no results of a run."""


@frozen(slots=True)
class LawRow:
    """What a run says of a law: its verdict, and how often it was judged."""

    verdict: str
    judged: int


@frozen(slots=True)
class ScopeRow:
    """What a run covered of a scope, in words; ``size`` is what a comparison looks at."""

    verdict: str
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

    ``part`` is what ``scopes`` are called: a run of the tensor layer has sources of runs there.
    """

    kind: str
    verdict: str
    kvproof: str = ""
    laws: Mapping[str, LawRow] = Factory(dict)
    faults: Mapping[str, str] = Factory(dict)
    scopes: Mapping[str, ScopeRow] = Factory(dict)
    part: str = "scope"
    releases: Mapping[str, Mapping[str, str]] = Factory(dict)
    situations: tuple[int, int] | None = None
    recordings: int = 0
    problems: tuple[str, ...] = ()
    found: tuple[Found, ...] = ()


def read(path: Path) -> Run:
    """Read a summary file, or that of a folder. Raises RunError."""
    file = path
    if path.is_dir():
        there = [path / name for name in SUMMARIES if (path / name).is_file()]
        if not there:
            raise RunError(f"{path}: holds none of {', '.join(SUMMARIES)}: name the folder of --report or --out, or a file")
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


def of(document: Mapping[str, Any]) -> Run:
    """Return the run of a summary. Raises KeyError, TypeError or AttributeError for anything else."""
    if document.get("format") == "kvproof-certificate":
        return _explored(document)
    if "releases" in document:
        return _conformed(document)
    if "adapter" in document:
        return _adapter(document)
    if "torch" in document:
        return _tensors(document)
    return _checked(document)


def _found(items: list[Any]) -> tuple[Found, ...]:
    loaded = [examples.loads(json.dumps(item)) for item in items]
    return tuple(Found(one.law, one.fault, one.scope, len(one.actions), one.message) for one in loaded)


def _checked(document: Mapping[str, Any]) -> Run:
    judged: Counter[str] = Counter()
    for counts in document["premises"].values():
        judged.update(counts)
    found = _found(document["counterexamples"])
    broken = {one.law for one in found if not one.fault}
    survivors = document["faults_survived"]
    return Run(
        kind="check",
        verdict=document["verdict"],
        laws={law: LawRow(_verdict(law in broken, count), count) for law, count in sorted(judged.items())},
        faults={
            one["id"]: ", ".join(f"{law} in {scope}" for law, scope in sorted(one["killed"].items()))
            + (f" (not by {', '.join(survivors[one['id']])})" if one["id"] in survivors else "")
            for one in document["faults"]
        },
        situations=(sum(1 for count in document["witnesses"].values() if count), len(document["situations_never_reached"])),
        recordings=document["recordings"],
        problems=tuple(document["problems"]),
        found=found,
    )


def _explored(document: Mapping[str, Any]) -> Run:
    found = _found(document["counterexamples"])
    broken = {one.law for one in found}
    return Run(
        kind="explore",
        verdict=document["verdict"],
        kvproof=document["kvproof"],
        laws={law: LawRow(_verdict(law in broken, count), count) for law, count in document["premises"].items()},
        faults={
            one["fault"]: f"{one['found']['law']} in {one['found']['scope']} after {one['found']['length']} actions"
            if one["found"]
            else ""
            for one in document["faults"]
        },
        scopes={
            one["scope"]: ScopeRow(
                one["verdict"], f"{one['orbits']:,} orbits, {one['edges']:,} edges, {one['end']}", tuple(one["leaves_out"])
            )
            for one in document["scopes"]
            if not one["fault"]
        },
        situations=(len(document["witnesses"]), len(document["situations_never_reached"] or ())),
        problems=tuple(document["problems"]),
        found=found,
    )


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
        verdict="refuted" if "refuted" in verdicts else "undetermined" if "undetermined" in verdicts else "holds",
        laws=laws,
        scopes={
            one["name"]: ScopeRow("skipped" if one["skipped"] else "walked", f"{one['walks']} walks, {one['actions']} actions")
            for one in document["scopes"]
        },
        problems=tuple(document["problems"]),
        found=_found([one["counterexample"] for one in document["laws"] if one["counterexample"] is not None]),
    )


def _tensors(document: Mapping[str, Any]) -> Run:
    rows = document["rows"]
    return Run(
        kind=f"gpu on {document['device']}",
        verdict=document["verdict"],
        scopes={
            one["source"]: ScopeRow(
                one["verdict"], f"{one['runs']:,} runs, {one['actions']:,} actions, {one['outputs']:,} outputs"
            )
            for one in rows
        },
        part="source",
        faults=dict.fromkeys(document["faults_survived"], ""),
        found=_found(document["counterexamples"]),
    )


def _verdict(broken: bool, judged: int) -> str:
    return "refuted" if broken else "holds" if judged else "undetermined"


# --- two runs -----------------------------------------------------------------------------------------------------------


@frozen(slots=True)
class Change:
    """Something that differs between two runs: of what, before and now ("" for: it was not there)."""

    what: str
    name: str
    before: str
    now: str

    @property
    def worse(self) -> bool:
        """Tell whether it is a step back: something held, was found or was covered, and is not any more."""
        if self.what == "counterexample":
            return not self.before
        if self.what == "fault":
            return bool(self.before) and not self.now
        held, holds = (text.partition(",")[0] == "holds" for text in (self.before, self.now))
        return not holds and (held or self.now.partition(",")[0] == "refuted")

    def __str__(self) -> str:
        return f"{self.what} {self.name}: {self.before or 'none'} > {self.now or 'none'}"


def changes(before: Run, now: Run) -> list[Change]:
    """Return what differs between two runs of one kind. Raises RunError for runs of different kinds."""
    if before.kind != now.kind:
        raise RunError(f"a run of {before.kind} and one of {now.kind} cannot be compared")
    found = _differing("verdict", {"all": before.verdict}, {"all": now.verdict})
    found += _differing("law", _verdicts(before.laws), _verdicts(now.laws))
    found += _differing("fault", before.faults, now.faults)
    found += _differing(now.part, _sizes(before), _sizes(now))
    for release in dict.fromkeys((*before.releases, *now.releases)):
        found += _differing(f"vLLM {release}", before.releases.get(release, {}), now.releases.get(release, {}))
    return found + _differing("counterexample", _examples(before), _examples(now))


def _verdicts(rows: Mapping[str, LawRow]) -> dict[str, str]:
    return {law: row.verdict for law, row in rows.items()}


def _sizes(run: Run) -> dict[str, str]:
    return {name: f"{row.verdict}, {row.size}" for name, row in run.scopes.items()}


def _examples(run: Run) -> dict[str, str]:
    return {f"{one.law}{' ' + one.fault if one.fault else ''} in {one.scope}": f"{one.length} actions" for one in run.found}


def _differing(what: str, before: Mapping[str, str], now: Mapping[str, str]) -> list[Change]:
    names = dict.fromkeys((*before, *now))
    return [
        Change(what, name, before.get(name, ""), now.get(name, ""))
        for name in names
        if before.get(name, "") != now.get(name, "")
    ]
