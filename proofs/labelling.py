"""Write what stands behind each law to where spec reads it, which knows nothing of proofs.

    python -m kvproof.proofs.labelling

Its label (proved, exhausted, tested) is for the pages of a run, the claims and scopes behind it for ``kvproof laws``. To be run
after ``kvproof prove --update`` and ``--certificate``; a test compares.
"""

from __future__ import annotations

from kvproof.proofs import exhausted, page, table
from kvproof.proofs.exhausted import Exhausted
from kvproof.spec import laws, standing
from kvproof.spec.report import labels
from kvproof.spec.standing import Proof, Standing


def found() -> dict[str, str]:
    """Return the label of each law by the table of expected verdicts and by what was exhausted."""
    rows, known = table.read(), exhausted.read()
    return {law.id: page.label(law, rows, known) for law in laws.ALL}


def behind() -> dict[str, Standing]:
    """Return the claims and the number of scopes behind the label of each law."""
    rows, known = table.read(), exhausted.read()
    return {
        law.id: Standing(
            tuple(Proof(one.name, page.bounds_of(one), one.about.deep) for one in page.confirmed(law, rows, settling=True)),
            len(page.confirmed(law, rows, settling=False)),
            known.get(law.id, Exhausted(0, 0)).scopes,
        )
        for law in laws.ALL
    }


def main() -> None:
    """Write the labels and what stands behind them."""
    labels.write(found())
    standing.write(behind())


if __name__ == "__main__":
    main()
