"""The text of a report on an adapter: no line of ids is longer than a terminal is wide."""

from __future__ import annotations

from kvproof.spec import laws
from kvproof.spec.conformance.oracle import Verdict
from kvproof.spec.conformance.reports import WIDTH, LawVerdict, Report


def test_the_list_of_undetermined_laws_is_wrapped_between_ids() -> None:
    whys = {law.id: "never seen" if at % 7 else "not shown" for at, law in enumerate(laws.ALL)}
    verdicts = tuple(LawVerdict(law, "a sentence", Verdict.UNDETERMINED, why) for law, why in whys.items())
    said = Report("mine", 0, (), verdicts).text().split("\nundetermined:\n")[1].splitlines()
    assert len(said) > 5
    assert all(len(line) <= WIDTH + 2 for line in said)
    told: dict[int, str] = {}
    for line in said:
        begins = not line.startswith("    ")
        told[len(told) if begins else len(told) - 1] = line.strip() if begins else f"{told[len(told) - 1]} {line.strip()}"
    for why in ("never seen", "not shown"):
        assert f"{', '.join(law for law in whys if whys[law] == why)}: {why}" in told.values()
