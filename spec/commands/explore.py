"""``kvproof explore``: all behaviours of small configurations."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping
from math import inf
from pathlib import Path

import click
from rich.console import Console

from kvproof.spec import check, faults, output
from kvproof.spec.commands.check import SHOWN, wide_console
from kvproof.spec.exits import ExitCode, UserError
from kvproof.spec.exploring import jobs, pins, resume, scopes
from kvproof.spec.exploring import result as results
from kvproof.spec.exploring.certificate import ENDS, bounds_as_dict
from kvproof.spec.exploring.jobs import Asked, Done, Job
from kvproof.spec.exploring.pins import Pin
from kvproof.spec.exploring.result import Result
from kvproof.spec.exploring.scopes import Which
from kvproof.spec.progress import Shown
from kvproof.spec.report import explored, files, terminal

CERTIFICATE = "certificate.json"
SUMMARY = "explore.json"
MEANING = (
    "another size is another model, law of generation or bound: if none of these was meant to change, something is wrong that "
    "no law names. kvproof replay compares with recordings of a real engine; --update pins what was found"
)
NAMED = 12
"""The command that pins anew names so many scopes one by one; where more differ, it explores what was explored."""


@click.command("explore", short_help="Explore all behaviours of small configurations.")
@click.option("--scope", "named", multiple=True, metavar="NAME", help="Only this scope; may be repeated; `list` lists them.")
@click.option("--quick", is_flag=True, help="Only the scopes that are small enough for every change.")
@click.option("--further", is_flag=True, help="The scopes beside the catalogue, for faults that it has no room for.")
@click.option("--product", is_flag=True, help="The product of group sets, ranks, host modes and EAGLE.")
@click.option(
    "--law", "laws", multiple=True, metavar="ID", help="Judge only this law, or all of a family (HO); may be repeated."
)
@click.option(
    "--fault",
    "planted",
    multiple=True,
    metavar="ID",
    help="Plant this fault and find its shortest counterexample: exit 2, else 3.",
)
@click.option("--faults", "every_fault", is_flag=True, help="Plant each fault in turn and compare with the table of kills.")
@click.option("--depth", type=click.IntRange(1, 10_000), metavar="N", help="Explore runs of at most N actions.")
@click.option("--full", is_flag=True, help="Count the worlds without the quotient by names, too (takes many times as long).")
@click.option(
    "--random", "runs", type=click.IntRange(1, 1_000_000), metavar="N", help="N random runs instead of all behaviours."
)
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Seed of the first random run (0).")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Write the certificate, and a file per finished scope."
)
@click.option("--resume", "resumed", is_flag=True, help="Take what is finished from the files in --out.")
@click.option("--update", is_flag=True, help="Pin the sizes that were found, and say what changed.")
@click.option("--report", type=click.Path(path_type=Path), metavar="DIR", help="Write counterexamples as JSON and Markdown.")
@click.option("--processes", type=click.IntRange(1, 64), default=2, show_default=True, help="Scopes explored at the same time.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--timing", is_flag=True, help="Say how long it took.")
def command(
    named: tuple[str, ...],
    quick: bool,
    further: bool,
    product: bool,
    laws: tuple[str, ...],
    planted: tuple[str, ...],
    every_fault: bool,
    depth: int | None,
    full: bool,
    runs: int | None,
    seed: int | None,
    out: Path | None,
    resumed: bool,
    update: bool,
    report: Path | None,
    processes: int,
    as_json: bool,
    timing: bool,
) -> ExitCode:
    """Explore all behaviours of small configurations, up to the names of blocks and tokens, and judge every law on each.

    Exit 0: the laws hold within the bounds, and what was covered is as pinned. Exit 2: a law is refuted, with a shortest
    counterexample. Exit 3: something was not covered (a law whose premise was never true, a situation never reached) or is not
    as pinned. docs/explore.md explains the certificate.
    """
    which = _which(quick, further, product)
    if "list" in named:
        return _list(which, [name for name in named if name != "list"], as_json)
    if seed is not None and runs is None:
        raise UserError("--seed N is the seed of the first random run: add --random N, or leave it out")
    asked = Asked(
        named,
        which,
        check.named_laws(laws),
        check.one_fault(planted),
        every_fault,
        depth,
        full,
        runs or 0,
        seed or 0,
        processes,
    )
    _refuse_nonsense(asked, out, resumed, update)
    work = jobs.jobs(asked)
    _check_outputs(work, out, report, update)
    began = time.monotonic()
    done = _perform(work, processes, out, resumed, as_json)
    changes: list[str] = []
    if update:
        changes = _update(done)
    result = results.of(asked, done)
    seconds = round(time.monotonic() - began, 1)
    document = results.as_dict(result)
    if out is not None:
        output.write_atomically(out / CERTIFICATE, json.dumps(document, indent=1, sort_keys=True) + "\n")
    written = files.write(result.found, document, report, SUMMARY) if report is not None else []
    if as_json:
        click.echo(json.dumps({**document, **({"seconds": seconds} if timing else {})}, indent=1, sort_keys=True))
    else:
        _print(result, changes, written, seconds if timing else None)
    return result.verdict


def _which(quick: bool, further: bool, product: bool) -> Which:
    """Return the set of scopes that is asked for. Raises UserError for more than one."""
    flags: dict[Which, bool] = {"quick": quick, "further": further, "product": product}
    asked: list[Which] = [which for which, given in flags.items() if given]
    if len(asked) > 1:
        raise UserError(f"{' and '.join(f'--{which}' for which in asked)} choose the scopes: take one of them at a time")
    return asked[0] if asked else "catalogue"


def _refuse_nonsense(asked: Asked, out: Path | None, resumed: bool, update: bool) -> None:
    """Refuse options that contradict one another. Raises UserError."""
    if resumed and out is None:
        raise UserError("--resume takes what is finished from the files in --out DIR: name the folder, too")
    chosen = asked.which != "catalogue"
    if asked.scopes and chosen:
        raise UserError(f"--{asked.which} chooses the scopes: leave --scope out, or --{asked.which}")
    if asked.every_fault and (asked.fault or asked.laws or chosen or asked.runs or asked.depth is not None):
        raise UserError(
            "--faults compares each fault with its pin: leave --fault, --law, --random, --depth and sets of scopes (--quick, "
            "--further, --product) out"
        )
    if not scopes.of(asked.which):
        raise UserError(f"there are no scopes in --{asked.which}: `kvproof explore --scope list` lists what there is")
    if asked.full and (asked.fault or asked.every_fault or asked.runs):
        raise UserError("--full counts whole graphs: leave --fault, --faults and --random out")
    if update and (asked.fault or asked.every_fault or asked.runs or asked.depth is not None):
        raise UserError(
            "--update pins the sizes of whole graphs: leave --fault, --faults, --random and --depth out (kills are pinned in "
            "spec/exploring/kills_*.py)"
        )


def _check_outputs(work: list[Job], out: Path | None, report: Path | None, update: bool) -> None:
    """Find out before the work is done whether its results can be written. Raises OutputError."""
    if out is not None:
        output.make_folder(out)
        for file in (out / CERTIFICATE, *(resume.file_of(job, out) for job in work)):
            output.check_writable(file)
    if report is not None:
        output.check_writable(output.make_folder(report) / SUMMARY)
    if update:
        for file in (pins.FILE, pins.PRODUCT):
            output.check_writable(file)


def _perform(work: list[Job], processes: int, out: Path | None, resumed: bool, quiet: bool) -> list[Done]:
    """Do what is not finished yet, and write down what is as soon as it is."""
    resume.sources()  # as they are now: somebody may change them while the work is done
    before: dict[str, Done] = {}
    pinned = {job.name: resume.pin_of(job) for job in work}
    if resumed and out is not None:
        for job in work:
            found = resume.read(job, out, pinned[job.name])
            if isinstance(found, Done):
                before[job.name] = found
            elif found:
                click.echo(f"{found}; explored again", err=True)
        click.echo(f"taken from {out}: {len(before)} of {len(work)}", err=True)
    left = longest_first([job for job in work if job.name not in before], pinned)
    with Shown("explore", len(work), quiet=quiet) as shown:
        for _ in before:
            shown.advance()

        def finished(done: Done) -> None:
            if out is not None:
                resume.write(done, out, pinned[done.job.name])
            shown.advance()
            if done.example is not None and not done.job.fault:
                shown.say(f"{done.job.name}: {done.example.law} is refuted, after {len(done.example.actions)} actions")

        try:
            new = {done.job.name: done for done in jobs.perform_all(left, processes, finished, shown.doing)}
        except KeyboardInterrupt:
            if out is not None:
                shown.say(f"{shown.done} of {len(work)} finished in {out}: the same command with --resume goes on")
            raise
    return [before.get(job.name) or new[job.name] for job in work]


def longest_first(work: list[Job], pinned: Mapping[str, Pin | None]) -> list[Job]:
    """Return the jobs in the order in which processes take them: those of unknown size, then the largest graphs."""
    return sorted(work, key=lambda job: -inf if (pin := pinned[job.name]) is None else -pin.edges)


def _update(done: list[Done]) -> list[str]:
    """Pin what was found, the product in a file of its own; return what changed."""
    changes: list[str] = []
    for file, members in ((pins.FILE, scopes.known()), (pins.PRODUCT, scopes.PRODUCT)):
        known = [scope.name for scope in members]
        certificates = [one.certificate for one in done if one.job.scope.name in known]
        pinned = pins.read(file)
        differing = pins.differences(certificates, pinned, known)
        if differing:
            pins.write(pins.updated(certificates, pinned, known), file)
        changes += [difference.anew for difference in differing]
    return [f"pinned anew: {change}" for change in changes] or ["everything is as pinned"]


def _list(which: Which, named: list[str], as_json: bool) -> ExitCode:
    """List scopes, those of a set or all but the product, one a line; named ones with what they leave out."""
    asked = [scopes.by_name(name) for name in named] or list(scopes.known() if which == "catalogue" else scopes.of(which))
    known = pins.every()
    if as_json:
        listed = [
            {
                "scope": scope.name,
                "set": scopes.set_of(scope),
                "quick": scope.quick,
                "groups": explored.said_of(scope.config()),
                "pin": None if scope.name not in known else pins.as_dict(known[scope.name]),
                "bounds": bounds_as_dict(scope.bounds),
                "leaves_out": list(scope.leaves_out()),
            }
            for scope in asked
        ]
        click.echo(json.dumps(listed, indent=1))
        return ExitCode.HOLDS
    rows = [
        (scope.name, scopes.set_of(scope), explored.said_of(scope.config()), _size(known.get(scope.name))) for scope in asked
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(4)]
    for scope, row in zip(asked, rows, strict=True):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        if named:
            click.echo("".join(f"  leaves out {text}\n" for text in scope.leaves_out()), nl=False)
    if not named:
        click.echo("what a scope leaves out: --scope list --scope NAME, or --json")
    return ExitCode.HOLDS


def _size(pin: Pin | None) -> str:
    return "no pin" if pin is None else f"{pin.orbits:,} orbits, {pin.edges:,} edges"


def _print(result: Result, changes: list[str], written: list[Path], seconds: float | None) -> None:
    console, asked = wide_console(), result.asked
    title = (
        "kvproof explore"
        + (f", {asked.fault} planted" if asked.fault else "")
        + ("" if asked.which == "catalogue" else f", {asked.which}")
    )
    explored.table(console, title, result, seconds is not None)
    if not asked.every_fault:
        _say(
            console,
            "bytes: of a key, before it is digested; judged: laws whose premise was true; situations: reached on some edge;",
        )
        ends = sorted({done.certificate.end for done in result.done})
        _say(console, "; ".join(f"{end}: {ENDS[end]}" for end in ends))
    for line in (*result.problems, *changes):
        _say(console, line)
    if any(one.pinned is not None and one.found is not None for one in result.differences):
        _say(console, MEANING)
    if seconds is not None:
        _say(console, f"{seconds} s")
    _say(console, f"verdict: {said_of(result)}")
    if asked.every_fault:
        if result.verdict is not ExitCode.HOLDS:
            _say(console, _again(result))
        return
    shown = result.found[: 1 if asked.fault else SHOWN]
    hidden = len(result.found) - len(shown)
    if hidden:
        _say(console, f"{hidden} more counterexamples: --json and --report DIR have them all")
    for number, example in enumerate(shown):
        console.print()
        terminal.show(console, example, str(written[number]) if written else None)
    if asked.fault and not shown:
        laws = asked.laws and [law for law in asked.laws if law not in faults.by_id(asked.fault).laws]
        why = (
            f"; {', '.join(laws)} is no law of the fault, which breaks {', '.join(faults.by_id(asked.fault).laws)}"
            if laws
            else ""
        )
        _say(console, f"no counterexample to {asked.fault} within these bounds{why}")
    if not shown and result.verdict is not ExitCode.HOLDS:
        _say(console, _again(result))


def said_of(result: Result) -> str:
    """Return the verdict in words that do not promise more than was done."""
    asked, verdict = result.asked, result.verdict
    if verdict is ExitCode.HOLDS and asked.every_fault:
        return "holds: every fault is found as pinned"
    if verdict is ExitCode.HOLDS:
        if asked.runs:
            return f"holds on {asked.runs} random runs of each scope"
        if all(done.certificate.end == "complete" for done in result.done):
            return "holds within the bounds"
        depth = "the depth of each scope" if asked.depth is None else f"{asked.depth} actions"
        return f"holds in every behaviour of at most {depth}"
    return verdict.name.lower()


def _again(result: Result) -> str:
    """Return the command that shows what is undetermined again, or that pins what was found."""
    asked = result.asked
    words = [word for name in asked.scopes for word in ("--scope", name)] + [
        word for law in asked.laws for word in ("--law", law)
    ]
    if asked.every_fault:
        differing = [killed.fault for killed in result.killed if not killed.as_pinned] or result.unpinned
        return f"kvproof explore --fault {differing[0]}"
    if asked.fault:
        words += ["--fault", asked.fault]
    if asked.which != "catalogue":
        words.append(f"--{asked.which}")
    if asked.depth is not None:
        words += ["--depth", str(asked.depth)]
    if asked.runs:
        words += ["--random", str(asked.runs), "--seed", str(asked.seed)]
    if result.differences:
        names = [difference.scope for difference in result.differences if difference.found is not None]
        if 0 < len(names) <= NAMED:
            return f"kvproof explore {shlex.join(word for name in names for word in ('--scope', name))} --update"
        words.append("--update")
    return " ".join(["kvproof explore", shlex.join(words)]).strip()


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
