"""Which results are taken up again: what the identity of a question holds, what of the sources, and which pin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from kvproof import core
from kvproof.core import actions as act
from kvproof.core import profiles
from kvproof.spec import faults, laws
from kvproof.spec.engines import scope_parts
from kvproof.spec.exploring import jobs, pins, resume, scopes
from kvproof.spec.exploring.bounds import Bounds
from kvproof.spec.exploring.jobs import Asked, Job
from kvproof.spec.exploring.pins import Pin
from kvproof.spec.exploring.scope import Scope

SETTINGS: dict[str, Any] = {"max_model_len": 3, "num_blocks": 4, "max_running": 1}
TINY = Scope("tiny", (scope_parts.full(1),), Bounds(("ab",), submits=1, live=1), SETTINGS)
PIN = Pin(3, 2, 1)


def asked_of(scope: Scope = TINY, fault: str = "", **asked: Any) -> str:
    """Return the identity of a job."""
    return resume.identity(Job(Asked(**asked), scope, fault), PIN)


@pytest.mark.parametrize(
    "changed",
    [
        {"scope": evolve(TINY, name="other")},
        {"scope": evolve(TINY, settings={**SETTINGS, "num_blocks": 5})},
        {"scope": evolve(TINY, settings={**SETTINGS, "profile": profiles.profile_named("vllm-0.33.0")})},
        {"scope": evolve(TINY, groups=(scope_parts.full(1), scope_parts.full(1)))},
        {"scope": evolve(TINY, bounds=evolve(TINY.bounds, at_most={act.Preempt: 1}))},
        {"scope": evolve(TINY, bounds=evolve(TINY.bounds, reserved=(1,)))},
        {"laws": ("PC-1",)},
        {"depth": 3},
        {"full": True},
        {"runs": 3},
        {"seed": 1},
    ],
    ids=["name", "settings", "profile", "groups", "counts", "bounds", "laws", "depth", "full", "runs", "seed"],
)
def test_another_question_has_another_identity(changed):
    assert asked_of(**changed) != asked_of()


def test_another_fault_has_another_identity_even_if_its_laws_are_the_same():
    one, two = "M-GEO-4", "M-GEO-6"
    assert faults.by_id(one).laws == faults.by_id(two).laws
    assert len({asked_of(), asked_of(fault=one), asked_of(fault=two)}) == 3


def test_other_laws_or_another_pin_have_another_identity(monkeypatch):
    before, job = asked_of(), Job(Asked(), TINY)
    assert len({before, resume.identity(job, None), resume.identity(job, evolve(PIN, worlds=9))}) == 3
    monkeypatch.setattr(laws, "ALL", laws.ALL[1:])
    assert asked_of() != before


def test_how_the_work_is_chosen_and_shared_is_no_matter():
    assert asked_of(scopes=("tiny",), which="quick", processes=9, every_fault=True) == asked_of()
    assert asked_of(fault="M-GEO-4") == resume.identity(Job(Asked(every_fault=True), TINY, "M-GEO-4"), PIN)
    assert asked_of(fault="M-GEO-4") == resume.identity(Job(Asked(fault="M-GEO-4"), TINY, "M-GEO-4"), PIN)


def digest(monkeypatch: pytest.MonkeyPatch, folder: Path, **files: str) -> str:
    """Return the digest of the sources, if these files lay there."""
    monkeypatch.setattr(core, "__file__", str(folder / "core" / "__init__.py"))
    monkeypatch.setattr(resume, "__file__", str(folder / "spec" / "exploring" / "resume.py"))
    for name, text in files.items():
        file = folder.joinpath(*name.split("__")).with_suffix(".txt" if name.endswith("notes") else ".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return resume.sources.__wrapped__()


def test_every_source_of_the_model_and_of_what_judges_it_counts(monkeypatch, tmp_path):
    files = {"core__pool": "1", "core__offload__loads": "1", "spec__exploring__search": "1", "spec__laws__base": "1"}
    before = digest(monkeypatch, tmp_path / "a", **files)
    assert digest(monkeypatch, tmp_path / "b", **files) == before
    assert digest(monkeypatch, tmp_path / "c", **files, core__notes="no source") == before
    others = {digest(monkeypatch, tmp_path / name, **{**files, name: "2"}) for name in files}
    others |= {digest(monkeypatch, tmp_path / "more", **files, spec__new="1")}
    renamed = {**files, "core__pools": files["core__pool"]}
    del renamed["core__pool"]
    others |= {digest(monkeypatch, tmp_path / "renamed", **renamed)}
    assert len(others | {before}) == len(files) + 3


def test_a_graph_is_taken_for_as_pinned_only_where_it_is_compared():
    scope = scopes.CATALOGUE[0]
    assert resume.pin_of(Job(Asked(), scope)) == pins.read()[scope.name]
    assert resume.pin_of(Job(Asked(), TINY)) is None
    assert resume.pin_of(Job(Asked(fault="M-LRU-1"), scope, "M-LRU-1")) is None
    assert resume.pin_of(Job(Asked(runs=3), scope)) is None


@pytest.mark.parametrize(("name", "value"), [("scope", "other"), ("fault", "M-LRU-2")])
def test_a_file_with_the_result_of_another_scope_or_fault_is_not_taken(tmp_path, name, value):
    done = jobs.perform(Job(Asked(fault="M-LRU-1"), TINY, "M-LRU-1"))
    file = resume.write(done, tmp_path, None)
    taken = resume.read(done.job, tmp_path, None)
    assert isinstance(taken, jobs.Done)
    assert (taken.example, taken.certificate) == (done.example, done.certificate)
    document = json.loads(file.read_text())
    document["certificate"][name] = value
    file.write_text(json.dumps(document))
    assert resume.read(done.job, tmp_path, None) == f"{file}: is of another scope or fault"


def test_a_file_of_a_violation_without_a_counterexample_is_not_taken(tmp_path):
    done = jobs.perform(Job(Asked(fault="M-LRU-1"), TINY, "M-LRU-1"))
    file = resume.write(evolve(done, example=None), tmp_path, None)
    assert str(resume.read(done.job, tmp_path, None)).startswith(f"{file}: contradicts itself")
