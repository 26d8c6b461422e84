"""What is said beside the table of verdicts on releases."""

from __future__ import annotations

from attrs import evolve

from kvproof.spec.vllm import legends, ticks
from kvproof.spec.vllm.verdicts import NEVER, Row, Table, Verdict


def table(version, *rows):
    return Table(version, "pretended", rows, 1, 40, 60)


def test_every_undetermined_law_is_named_with_its_reason_however_many_there_are():
    never = [Row(f"CP-{number}", "undetermined", 0, why=NEVER) for number in range(1, 31)]
    hidden = Row("TB-13", "undetermined", 1926, why="it asked", missing=(("rows", 355), ("geometry", 2)))
    lines = list(legends.undetermined([table("1.0", *never, hidden, Row("PC-1", "holds", 12))]))
    said = " ".join(line.strip() for line in lines)
    assert said == (
        f"undetermined, {NEVER}: {', '.join(row.law for row in never)} undetermined, asked for what cannot be seen, rows, "
        "geometry: TB-13 (357; judged 1,926)"
    )
    assert len(lines) > 3
    assert all(len(line) <= 120 for line in lines)


def test_a_release_in_which_it_is_otherwise_is_named():
    unseen = Row("TB-13", "undetermined", 0, why="it asked", missing=(("rows", 1),))
    held, never = evolve(unseen, verdict="holds", judged=30), evolve(unseen, missing=(), why=NEVER)
    torn = evolve(table("4.0", unseen), unusable="it is torn")
    assert list(legends.undetermined([table("1.0", unseen), table("2.0", held), table("3.0", never), torn])) == [
        "undetermined in 1.0, asked for what cannot be seen, rows: TB-13 (1; judged 0)",
        f"undetermined in 3.0, {NEVER}: TB-13",
    ]
    assert list(legends.undetermined([torn])) == []


def test_few_judgements_are_weak_evidence_only_of_what_was_kept():
    row = Row("PC-1", "holds", legends.FEW - 1)
    assert legends.is_weak(row)
    assert not legends.is_weak(evolve(row, judged=legends.FEW))
    words: tuple[Verdict, ...] = ("declared", "bent", "refuted", "undetermined")
    assert [word for word in words if legends.is_weak(Row("PC-1", word, 2))] == ["declared", "bent"]


def test_runs_are_counted_by_all_processes_together():
    before = ticks.count()
    ticks.tick()
    ticks.join(ticks.counter())
    ticks.tick()
    assert ticks.count() == before + 2
