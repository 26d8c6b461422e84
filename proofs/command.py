"""``kvproof prove``: claims and lemmas about the model, for all sizes or any contents."""

from __future__ import annotations

import os
from pathlib import Path

import click

from kvproof.spec.exits import ExitCode


@click.command("prove", short_help="Prove claims about the model with CrossHair and Z3.")
@click.option("--quick", is_flag=True, help="Leave out what takes long.")
@click.option("--claim", "claims", multiple=True, metavar="NAME", help="Only this claim; may be repeated; `list` lists them.")
@click.option(
    "--law",
    "laws",
    multiple=True,
    metavar="ID",
    help="Only claims that name this law, or one of a family (HO); may be repeated.",
)
@click.option(
    "--fault",
    "planted",
    multiple=True,
    metavar="ID",
    help="Plant this fault: exit 2 if a claim is refuted, else 3; `list` lists twins.",
)
@click.option("--update", is_flag=True, help="Write what was found into the table of expected verdicts.")
@click.option(
    "--write", type=click.Path(path_type=Path), metavar="FILE", help="Write the page of verified properties (from the table)."
)
@click.option(
    "--certificate",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Take what was exhausted of each law from a certificate of kvproof explore.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    default=lambda: min(64, os.cpu_count() or 1),
    show_default="one for each core",
    help="Questions asked at the same time.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--timing", is_flag=True, help="Say how long each answer took.")
def command(
    quick: bool,
    claims: tuple[str, ...],
    laws: tuple[str, ...],
    planted: tuple[str, ...],
    update: bool,
    write: Path | None,
    certificate: Path | None,
    processes: int,
    as_json: bool,
    timing: bool,
) -> ExitCode:
    """Prove claims about functions of the model, refute their twins, and compare with the table of expected verdicts.

    Exit 0: everything is as the table says. Exit 2: a claim is refuted, with values that show it. Exit 3: something else is not
    as the table says. Each claim has a vacuity twin (a false claim under the same preconditions) and faulty twins (the same
    claim on a model that is wrong in one place); all of them must be refuted. Each lemma has a tie, which compares its formulas
    with the functions that they stand for. docs/prove.md explains the claims.
    """
    from kvproof.proofs import running  # only here: `kvproof --help` needs neither CrossHair nor Z3

    return running.run(
        quick,
        claims,
        laws,
        planted,
        update=update,
        write=write,
        certificate=certificate,
        processes=processes,
        as_json=as_json,
        timing=timing,
    )
