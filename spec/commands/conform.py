"""``kvproof conform``: implementations other than the model, judged by the laws."""

from __future__ import annotations

import datetime
import json
import shlex
from collections.abc import Sequence
from pathlib import Path

import click
from attrs import frozen
from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from kvproof.spec import laws as all_laws
from kvproof.spec import output
from kvproof.spec.commands import _conform_actions, _conform_adapter
from kvproof.spec.commands.check import wide_console
from kvproof.spec.conformance.reports import wrapped
from kvproof.spec.exits import ExitCode, UserError
from kvproof.spec.progress import Shown
from kvproof.spec.report import files as files_of_a_run
from kvproof.spec.vllm import baseline, legends, matrix, pages, process, releases, runs, scopes, ticks
from kvproof.spec.vllm.baseline import Entry
from kvproof.spec.vllm.matrix import Compared, Options
from kvproof.spec.vllm.releases import Release
from kvproof.spec.vllm.verdicts import Finding, Row, Table

STYLES = {"holds": "green", "refuted": "bold red", "declared": "cyan", "bent": "magenta", "undetermined": "yellow"}
ORDER = ("refuted", "bent", "declared", "undetermined", "holds")
SHOWN_KINDS = 6
"""Kinds of what the followed profile does not predict."""
STAGES = ("starting the releases", "making the cases of refuted laws smaller")
"""What the display says until the first job of a stage is done: importing torch and a release takes a while."""
SHOWN_HOLDS = 12
"""Laws that hold have a row each up to so many; more of them share one line."""


@click.group("conform", short_help="Judge another implementation, or a release of vLLM, by the laws.")
def command() -> None:
    """Judge an implementation of the same alphabet (adapter), or the scheduler of real vLLM releases (vllm), by the laws."""


command.add_command(_conform_adapter.adapter)
command.add_command(_conform_actions.actions)


# --- vllm ------------------------------------------------------------------------------------------------------------


@frozen(slots=True)
class _Named:
    """A release and how the command line named it."""

    release: Release
    asked: str


@command.command("vllm", short_help="Run a real release's scheduler on a CPU by generated scripts and judge it.")
@click.option("--version", "named", multiple=True, metavar="X", help="A release, fetched by name (pip) unless it is cached.")
@click.option(
    "--path",
    "paths",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="CHECKOUT",
    help="A folder that holds the package vllm.",
)
@click.option("--installed", is_flag=True, help="The vLLM of this Python.")
@click.option("--versions", metavar="A,B,...", default="", help="Several releases as a matrix.")
@click.option("--base", metavar="A", default="", help="With --head: fail only on what is new in the head release.")
@click.option("--head", metavar="B", default="", help="The release to compare with --base.")
@click.option("--seed", default=0, show_default=True, help="The same seed gives the same scripts.")
@click.option("--steps", type=click.IntRange(1), metavar="N", help="Scheduler steps in all, about; default 2000.")
@click.option("--quick", is_flag=True, help="Fewer scopes and a few hundred steps.")
@click.option("--scope", metavar="NAME", default="", help="Run only this scope; `--scope list` lists them.")
@click.option("--case", "number", type=click.IntRange(0), metavar="N", help="With --scope: only this case of the seed.")
@click.option("--script", type=click.Path(path_type=Path), metavar="FILE", help="Run only the case in this file of a report.")
@click.option("--law", "laws", multiple=True, metavar="ID", help="Judge only this law, or all of a family; may be repeated.")
@click.option(
    "--baseline", "files", multiple=True, type=click.Path(path_type=Path), help="Declared deviations, instead of ours."
)
@click.option("--report", type=click.Path(path_type=Path), metavar="DIR", help="Write pages, scripts and recordings.")
@click.option("--processes", type=click.IntRange(1, 64), default=2, show_default=True, help="Processes that share the work.")
@click.option("--all", "everything", is_flag=True, help="A row for every law that holds, too.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def vllm(  # one argument per option
    named: tuple[str, ...],
    paths: tuple[Path, ...],
    installed: bool,
    versions: str,
    base: str,
    head: str,
    seed: int,
    steps: int | None,
    quick: bool,
    scope: str,
    number: int | None,
    script: Path | None,
    laws: tuple[str, ...],
    files: tuple[Path, ...],
    report: Path | None,
    processes: int,
    everything: bool,
    as_json: bool,
) -> ExitCode:
    """Run the real scheduler of vLLM releases by generated scripts and judge every step by the laws.

    Exit 0: every law holds within the bounds that the table names, or its violations are declared. Exit 2: a law is refuted.
    Exit 3: something is undetermined, or an entry of the baseline is stale or has expired.
    """
    if scope == "list":
        return _list_scopes(as_json)
    if number is not None and not scope:
        raise UserError("--case is a case of one scope: give --scope NAME, too")
    found = _releases(_names(named, paths, installed, versions, base, head))
    options = Options(
        seed=seed,
        steps=steps or (matrix.QUICK_STEPS if quick else matrix.STEPS),
        quick=quick,
        laws=laws,
        scope=scope,
        number=number,
        case=None if script is None else _read_case(script),
        processes=processes,
        shrink_runs=matrix.shrink_runs(quick, len(found)),
    )
    matrix.chosen_laws(laws)
    matrix.plan(options)
    if report is not None:
        output.check_writable(output.make_folder(report) / "conform.json")
    entries = _entries(files)
    tables = _judged(options, [one.release for one in found], entries, as_json)
    compared = _compared(base, found, tables, processes)
    verdict = _verdict(tables, compared, laws)
    written = {}
    if report is not None:
        for one, table in zip(found, tables, strict=True):
            written[table.version] = pages.write(table, report, one.asked, _budget(options))
        document = _as_dict(tables, compared, verdict)
        output.write_atomically(report / "conform.json", json.dumps(document, indent=1) + "\n")
        files_of_a_run.write_index(document, [], report)
    if as_json:
        click.echo(json.dumps(_as_dict(tables, compared, verdict), indent=1, sort_keys=True))
    else:
        _print(tables, compared, verdict, options, everything)
        for table in tables:
            for finding, page in zip(table.findings, written.get(table.version, ()), strict=False):
                click.echo(f"page: {page} ({pages.beside(finding)})")
        click.echo(_last_line(found, tables, compared, options, report))
    return verdict


def _names(
    named: Sequence[str], paths: Sequence[Path], installed: bool, versions: str, base: str, head: str
) -> list[tuple[str, str]]:
    """Return (name for `releases.find`, words of the command line) of the wanted releases. Raises UserError."""
    ways = [bool(named), bool(paths), installed, bool(versions), bool(base or head)]
    if sum(ways) != 1:
        raise UserError("name what to judge by one of --version, --path, --installed, --versions, or --base and --head")
    if bool(base) != bool(head):
        raise UserError("--base and --head go together")
    if len(named) > 1:
        raise UserError(f"--version is given {len(named)} times: name several releases by --versions {','.join(named)}")
    if len(paths) > 1:
        raise UserError(f"--path is given {len(paths)} times: judge one checkout after the other")
    if paths:
        return [(str(paths[0].resolve()), f"--path {shlex.quote(str(paths[0]))}")]
    if installed:
        return [(releases.INSTALLED, "--installed")]
    every = named or ((base, head) if base else [name.strip() for name in versions.split(",") if name.strip()])
    return [(name, f"--version {shlex.quote(name)}") for name in dict.fromkeys(every)]


def _releases(names: Sequence[tuple[str, str]]) -> list[_Named]:
    missing = process.missing_packages()
    if missing:  # said before anything is fetched
        raise UserError(f"the scheduler of a release needs {process.lacks(missing)}")
    found = [_Named(releases.find(name, say=lambda text: click.echo(text, err=True)), asked) for name, asked in names]
    for one in found:
        if [other.release.version for other in found].count(one.release.version) > 1:
            raise UserError(f"{one.release.version} is named twice")
    return found


def _read_case(script: Path) -> runs.Case:
    try:
        data = script.read_bytes()
    except OSError as error:
        raise UserError(f"{script}: cannot be read: {error.strerror}; name a file of a report") from error
    return runs.from_json(data, str(script))


def _entries(files: Sequence[Path]) -> list[Entry]:
    if not files:
        return baseline.shipped(all_laws.ALL)
    return [entry for file in files for entry in baseline.read(file, all_laws.ALL)]


def _judged(options: Options, found: Sequence[Release], entries: Sequence[Entry], quiet: bool) -> list[Table]:
    """Run everything with a display of what is done."""
    per_release = {release.version: baseline.of_release(entries, release.version) for release in found}
    displays: list[Shown] = []
    stages: list[int] = []
    before = ticks.count()

    def started(count: int) -> None:
        for display in displays:
            display.__exit__(None, None, None)
        displays.clear()
        if count:
            display = Shown("conform", count, quiet=quiet, more=lambda: f"{ticks.count() - before:,} runs")
            display.__enter__()
            display.doing(STAGES[min(len(stages), len(STAGES) - 1)])
            displays.append(display)
            stages.append(count)

    def finished(job: matrix.Job) -> None:
        displays[-1].doing(f"{job.name} finished")
        displays[-1].advance()

    try:
        return matrix.judge(options, found, per_release, datetime.date.today(), started, finished)
    finally:
        started(0)


def _compared(base: str, found: Sequence[_Named], tables: Sequence[Table], processes: int) -> Compared | None:
    if not base or len(found) != 2:
        return None
    return matrix.compare(tables[0], tables[1], found[0].release, processes)


def _verdict(tables: Sequence[Table], compared: Compared | None, asked: Sequence[str]) -> ExitCode:
    """Return the exit status: of a comparison, only what is new counts."""
    if compared is not None:
        if compared.new:
            return ExitCode.REFUTED
        return ExitCode.UNDETERMINED if _open_points(tables, compared, asked) else ExitCode.HOLDS
    verdicts = [table.verdict(asked) for table in tables]
    for worst in (ExitCode.REFUTED, ExitCode.UNDETERMINED):
        if worst in verdicts:
            return worst
    return ExitCode.HOLDS


def _open_points(tables: Sequence[Table], compared: Compared | None, asked: Sequence[str]) -> list[str]:
    """Return why nothing can be said, in words; of a base release, only whether it could be run."""
    found = []
    for at, table in enumerate(tables):
        points = ["it could not be run"] if table.unusable or not table.runs else []
        if compared is None or at:
            points += ["runs were not judged to their end"] if table.problems else []
            points += ["an entry of the baseline is stale"] if table.stale else []
            points += ["an entry of the baseline has expired"] if table.expired else []
            unknown = [row.law for row in table.rows if row.law in asked and row.verdict == "undetermined"]
            points += [f"{', '.join(unknown)} is undetermined"] if unknown else []
        found += [f"vLLM {table.version}: {point}" for point in points]
    return found


def _in_words(tables: Sequence[Table], compared: Compared | None, verdict: ExitCode, asked: Sequence[str]) -> str:
    """Return the verdict and what it rests on."""
    why = "; ".join(_open_points(tables, compared, asked))
    if compared is not None:
        both = [law for law in tables[1].refuted if law not in compared.new]
        known = f" ({compared.base} breaks them, too: {', '.join(both)})" if both else ""
        new = ", ".join(sorted(compared.new))
        why = f"new in {compared.head}: {new}" if new else why or f"nothing is new in {compared.head} against {compared.base}"
        why += known
    elif verdict is ExitCode.REFUTED:
        why = "; ".join(f"vLLM {table.version}: {', '.join(table.refuted)}" for table in tables if table.refuted)
    elif verdict is ExitCode.HOLDS:
        why = "no law is refuted within these runs"
    return f"verdict: {verdict.name.lower()}: {why}"


def _list_scopes(as_json: bool) -> ExitCode:
    if as_json:
        rows = [
            {"name": one.name, "covers": one.covers, "leaves_out": one.leaves_out, "quick": one.quick} for one in scopes.ALL
        ]
        click.echo(json.dumps(rows, indent=1))
    else:
        for one in scopes.ALL:
            click.echo(f"{one.name}: {one.covers}; leaves out: {one.leaves_out}")
        click.echo("random-N: drawn at random by N")
        click.echo("no scope has: " + "; ".join(scopes.LEFT_OUT))
    return ExitCode.HOLDS


def _as_dict(tables: Sequence[Table], compared: Compared | None, verdict: ExitCode) -> dict[str, object]:
    found: dict[str, object] = {"verdict": verdict.name.lower(), "releases": [pages.as_dict(table) for table in tables]}
    if compared is not None:
        found["compared"] = {
            "base": compared.base,
            "head": compared.head,
            "new": dict(sorted(compared.new.items())),
            "gone": {row.law: row.verdict for row in compared.gone},
        }
    return found


# --- printing --------------------------------------------------------------------------------------------------------


def _print(tables: Sequence[Table], compared: Compared | None, verdict: ExitCode, options: Options, everything: bool) -> None:
    console = wide_console()
    console.print(f"kvproof conform vllm, seed {options.seed}", highlight=False, style="italic")
    if not all(table.unusable for table in tables):
        _print_grid(console, tables, everything)
    for table in tables:
        _print_remarks(console, table)
    for table in tables:
        for finding in table.findings:
            console.print()
            console.print(Text(f"vLLM {table.version}: {finding.law} does not hold", style="bold red"))
            for line in _finding_lines(finding, table):
                console.print(Text(f"  {line}"), soft_wrap=True)
    if any(finding.case is not None for table in tables for finding in table.findings):
        console.print(Text(f"\n{pages.WORDS}"), soft_wrap=True)
    if compared is not None:
        console.print()
        for law, why in sorted(compared.new.items()):
            console.print(f"new in {compared.head}: {law}: {why}", highlight=False)
        for row in compared.gone:
            how = f"{row.verdict}, judged {row.judged:,} times" if row.judged else f"{row.verdict}: {row.why}"
            word = "fixed" if row.verdict == "holds" else "not refuted any more"
            console.print(f"{word} in {compared.head}: {row.law}: {how}", highlight=False)
    console.print(_in_words(tables, compared, verdict, options.laws), highlight=False, markup=False, soft_wrap=True)


def _finding_lines(finding: Finding, table: Table) -> list[str]:
    lines = [
        pages.law_of(finding).sentence,
        finding.breach.message,
        *(f"{name} = {pages.cut(value, 400)}" for name, value in finding.breach.values),
        *(f"the release itself derives {line}" for line in pages.derived(finding)),
    ]
    where, others = pages.sections(lines[0]), pages.together(finding, table)
    lines += [f"({where})"] if where else []
    lines += [f"the same generated case refutes {', '.join(others)}, too: they may share one cause"] if others else []
    rows = pages.operations(finding)
    lines.append(f"in {_counted(len(rows), 'operation')}; {pages.described(finding)}")
    shown = rows if len(rows) <= 24 else rows[-24:]
    if len(shown) < len(rows):
        lines.append(f"(the first {len(rows) - len(shown)} operations: --report DIR)")
    return lines + [
        f"{number:>4} {pages.cut(asked, 200)}" + (f" -> {pages.cut(answered, 400)}" if answered else "")
        for number, asked, answered in shown
    ]


def _print_grid(console: Console, tables: Sequence[Table], everything: bool) -> None:
    """Print the table, a row per law and a column per release: what is refuted first; what holds everywhere in one line."""
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False)
    grid.add_column("law", no_wrap=True)
    for table in tables:
        grid.add_column(table.version, no_wrap=True)
    rows = sorted(zip(*(table.rows for table in tables), strict=True), key=lambda row: min(map(_place, row)))
    holding = [
        row[0].law + legends.WEAK * any(map(legends.is_weak, row))
        for row in rows
        if {cell.verdict for cell in row} == {"holds"}
    ]
    folded = not everything and len(holding) > SHOWN_HOLDS
    for row in rows:
        verdicts = {cell.verdict for cell in row}
        if verdicts != {"undetermined"} and not (folded and verdicts == {"holds"}):
            grid.add_row(row[0].law, *(_cell(cell) for cell in row))
    if grid.row_count:
        console.print(grid)
    if folded:
        where = "in every release" if len(tables) > 1 else "within these runs"
        text = f"{len(holding)} laws hold {where} (--all: how often each was judged): {', '.join(holding)}"
        for line in wrapped(text):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    for table in tables:
        bounds = f"{table.runs} runs, {table.steps:,} scheduler steps, {table.operations:,} recorded operations"
        console.print(f"vLLM {table.version}: {bounds}; {table.trusted}", highlight=False, markup=False, soft_wrap=True)
    open_laws = list(legends.undetermined(tables))
    words = [legends.FEW_WORDS] if any(legends.is_weak(cell) for row in rows for cell in row) else []
    for line in (*words, *open_laws, *([legends.UNDETERMINED] if open_laws else [])):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _place(row: Row) -> int:
    return ORDER.index(row.verdict)


def _cell(row: Row) -> Text:
    seen = row.declared + row.bent
    count = f" {row.broken:,} of {row.judged:,}" if row.broken else f" {seen:,} of {row.judged:,}" if seen else ""
    count = count or (f" {row.judged:,}" if row.judged else "")
    return Text(row.verdict + count + legends.WEAK * legends.is_weak(row), style=STYLES[row.verdict])


def _print_remarks(console: Console, table: Table) -> None:
    remarks = [f"cannot be run: {table.unusable}"] if table.unusable else []
    remarks += [f"scope {scope} cannot be run: {why}" for scope, why in sorted(table.unsupported.items())]
    remarks += [f"stale entry of the baseline: {what}" for what in table.stale]
    remarks += [f"expired entry of the baseline: {what}" for what in table.expired]
    remarks += [
        f"{row.law} is bent by {_fields(row.law, table.version)} of the followed profile (docs/laws.md); "
        "no entry of the baseline declares it"
        for row in table.rows
        if row.verdict == "bent"
    ]
    if table.failures:
        case, what = table.failures[0]
        judge = "LV-9 judges it" if table.row("LV-9") else "LV-9 would judge it and was not asked for: --law LV-9"
        remarks.append(f"{_counted(len(table.failures), 'run')} ended early, the first ({case}): {what}; {judge}")
    if table.problems:
        case, what = table.problems[0]
        remarks.append(f"not judged to their end: {_counted(len(table.problems), 'run')}, the first ({case}): {what}")
    differing = sum(table.differing.values())
    if differing:
        kinds = sorted(table.kinds.items(), key=lambda pair: (-pair[1], pair[0]))
        shown = ", ".join(f"{kind} {count:,} times" for kind, count in kinds[:SHOWN_KINDS])
        more = f", and {_counted(len(kinds) - SHOWN_KINDS, 'more kind')} (--json)" if len(kinds) > SHOWN_KINDS else ""
        what = f"something that the profile {runs.followed(table.version).name} does not predict (no violation)"
        remarks.append(f"{differing} of {table.runs} runs do {what}: {shown}{more}")
    for remark in remarks:
        console.print(f"vLLM {table.version}: {remark}", highlight=False, markup=False, soft_wrap=True)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count:,} {what}s"


def _fields(law: str, version: str) -> str:
    """Return the fields of the profile that a release is followed under which bend a law."""
    profile = runs.followed(version)
    pairs = next(one.bent_by for one in all_laws.ALL if one.id == law)
    return ", ".join(f"{name} = {value}" for name, value in pairs if getattr(profile, name) == value)


def _budget(options: Options) -> list[str]:
    """Return the words of the command line that say how much is tried."""
    usual = matrix.QUICK_STEPS if options.quick else matrix.STEPS
    return (["--quick"] if options.quick else []) + ([f"--steps {options.steps}"] if options.steps != usual else [])


def _last_line(
    found: Sequence[_Named], tables: Sequence[Table], compared: Compared | None, options: Options, report: Path | None
) -> str:
    """Return the command that shows the first finding again; without one, the command itself."""
    order = list(zip(found, tables, strict=True))
    for one, table in reversed(order) if compared is not None else order:
        for finding in table.findings:
            if compared is None or finding.law in compared.new:
                file = None if report is None else report / f"vllm-{table.version}" / f"{finding.law}{pages.SCRIPT_ENDING}"
                return pages.reproduce(one.asked, finding, file, _budget(options))
    names = " ".join(one.asked for one in found[:1])
    if len(found) > 1:
        names = f"--versions {','.join(table.version for table in tables)}"
    if compared is not None:
        names = f"--base {compared.base} --head {compared.head}"
    words = [f"--seed {options.seed}", f"--steps {options.steps}"] + (["--quick"] if options.quick else [])
    words += [f"--scope {options.scope}"] if options.scope else []
    return " ".join(["kvproof conform vllm", names, *words, *(f"--law {law}" for law in options.laws)])
