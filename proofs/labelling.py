"""Write the label of each law (proved, exhausted, tested) to where the pages of a run read it: spec knows nothing of proofs.

    python -m kvproof.proofs.labelling

To be run after ``kvproof prove --update`` and ``--certificate``; a test compares.
"""

from __future__ import annotations

from kvproof.proofs import exhausted, page, table
from kvproof.spec import laws
from kvproof.spec.report import labels


def found() -> dict[str, str]:
    """Return the label of each law by the table of expected verdicts and by what was exhausted."""
    rows, known = table.read(), exhausted.read()
    return {law.id: page.label(law, rows, known) for law in laws.ALL}


def main() -> None:
    """Write the labels."""
    labels.write(found())


if __name__ == "__main__":
    main()
