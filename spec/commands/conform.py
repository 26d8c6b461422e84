"""``kvproof conform``: implementations other than the model, judged by the laws."""

from __future__ import annotations

import datetime
import importlib
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
from kvproof.spec.commands.check import wide_console
from kvproof.spec.conformance import files as adapter_files
from kvproof.spec.conformance.adapter import AdapterError
from kvproof.spec.conformance.reports import Report, counted, shortest_first
from kvproof.spec.exits import ExitCode, UserError
from kvproof.spec.judge import describe_crash
from kvproof.spec.progress import Shown, Told
from kvproof.spec.vllm import baseline, matrix, pages, releases, runs, scopes
from kvproof.spec.vllm.baseline import Entry
from kvproof.spec.vllm.matrix import Compared, Options
from kvproof.spec.vllm.releases import Release
from kvproof.spec.vllm.verdicts import Finding, Row, Table

STYLES = {"holds": "green", "refuted": "bold red", "declared": "cyan", "bent": "magenta", "undetermined": "yellow"}
SHOWN_UNDETERMINED = 12


@click.group("conform", short_help="Judge another implementation, or a release of vLLM, by the laws.")
def command() -> None:
    """Judge an implementation of the same alphabet (adapter), or the scheduler of real vLLM releases (vllm), by the laws."""


# --- vllm ------------------------------------------------------------------------------------------------------------


@frozen(slots=True)
class _Named:
    """A release and how the command line named it."""

    release: Release
    asked: str


@command.command("vllm", short_help="Run a real release's scheduler on a CPU by generated scripts and judge it.")
@click.option("--version", "version", metavar="X", default="", help="A release, fetched by name (pip) unless it is cached.")
@click.option("--path", type=click.Path(path_type=Path), metavar="CHECKOUT", help="A folder that holds the package vllm.")
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
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def vllm(  # one argument per option
    version: str,
    path: Path | None,
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
    found = _releases(_names(version, path, installed, versions, base, head))
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
            written[table.version] = pages.write(table, report, one.asked)
        output.write_atomically(report / "conform.json", json.dumps(_as_dict(tables, compared, verdict), indent=1) + "\n")
    if as_json:
        click.echo(json.dumps(_as_dict(tables, compared, verdict), indent=1, sort_keys=True))
    else:
        _print(tables, compared, verdict, options)
        for page in (page for every in written.values() for page in every):
            click.echo(f"page: {page}")
        click.echo(_last_line(found, tables, compared, options, report))
    return verdict


def _names(version: str, path: Path | None, installed: bool, versions: str, base: str, head: str) -> list[tuple[str, str]]:
    """Return (name for `releases.find`, words of the command line) of the wanted releases. Raises UserError."""
    ways = [bool(version), path is not None, installed, bool(versions), bool(base or head)]
    if sum(ways) != 1:
        raise UserError("name what to judge by one of --version, --path, --installed, --versions, or --base and --head")
    if bool(base) != bool(head):
        raise UserError("--base and --head go together")
    if path is not None:
        return [(str(path.resolve()), f"--path {shlex.quote(str(path))}")]
    if installed:
        return [(releases.INSTALLED, "--installed")]
    every = [version] if version else [base, head] if base else [name.strip() for name in versions.split(",") if name.strip()]
    return [(name, f"--version {shlex.quote(name)}") for name in dict.fromkeys(every)]


def _releases(names: Sequence[tuple[str, str]]) -> list[_Named]:
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

    def started(count: int) -> None:
        for display in displays:
            display.__exit__(None, None, None)
        displays.clear()
        if count:
            display = Shown("conform", count, quiet=quiet)
            display.__enter__()
            displays.append(display)

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
        bad = any(table.unusable or not table.runs for table in tables) or tables[1].stale or tables[1].expired
        return ExitCode.UNDETERMINED if bad else ExitCode.HOLDS
    verdicts = [table.verdict(asked) for table in tables]
    for worst in (ExitCode.REFUTED, ExitCode.UNDETERMINED):
        if worst in verdicts:
            return worst
    return ExitCode.HOLDS


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
        found["compared"] = {"base": compared.base, "head": compared.head, "new": dict(sorted(compared.new.items()))}
    return found


# --- printing --------------------------------------------------------------------------------------------------------


def _print(tables: Sequence[Table], compared: Compared | None, verdict: ExitCode, options: Options) -> None:
    console = wide_console()
    _print_grid(console, tables, options)
    for table in tables:
        _print_remarks(console, table)
    for table in tables:
        for finding in table.findings:
            console.print()
            console.print(Text(f"vLLM {table.version}: {finding.law} does not hold", style="bold red"))
            for line in _finding_lines(finding):
                console.print(Text(f"  {line}"), soft_wrap=True)
    if compared is not None:
        console.print()
        for law, why in sorted(compared.new.items()):
            console.print(f"new in {compared.head}: {law}: {why}", highlight=False)
        if not compared.new:
            console.print(f"nothing is new in {compared.head} against {compared.base}", highlight=False)
    console.print(f"verdict: {verdict.name.lower()}", highlight=False)


def _finding_lines(finding: Finding) -> list[str]:
    lines = [
        pages.law_of(finding).sentence,
        finding.breach.message,
        *(f"{name} = {value[:400]}" for name, value in finding.breach.values),
    ]
    rows = pages.operations(finding)
    lines.append(f"in {len(rows)} operations; {pages.described(finding)}")
    shown = rows if len(rows) <= 24 else rows[-24:]
    if len(shown) < len(rows):
        lines.append(f"(the first {len(rows) - len(shown)} operations: --report DIR)")
    return lines + [
        f"{number:>4} {asked[:200]}" + (f" -> {answered[:400]}" if answered else "") for number, asked, answered in shown
    ]


def _print_grid(console: Console, tables: Sequence[Table], options: Options) -> None:
    """Print the table: one row per law that is not plainly undetermined everywhere, one column per release."""
    title = f"kvproof conform vllm, seed {options.seed}"
    grid = Grid(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    grid.add_column("law", no_wrap=True)
    for table in tables:
        grid.add_column(table.version, no_wrap=True)
    silent = []
    for at, row in enumerate(tables[0].rows):
        cells = [table.rows[at] for table in tables]
        if all(cell.verdict == "undetermined" for cell in cells):
            silent.append(f"{row.law} ({cells[0].why})")
            continue
        grid.add_row(row.law, *(_cell(cell) for cell in cells))
    console.print(grid)
    for table in tables:
        bounds = f"{table.runs} runs, {table.steps:,} scheduler steps, {table.operations:,} recorded operations"
        console.print(f"vLLM {table.version}: {bounds}; {table.trusted}", highlight=False, markup=False, soft_wrap=True)
    if silent:
        more = f" and {len(silent) - SHOWN_UNDETERMINED} more (--json)" if len(silent) > SHOWN_UNDETERMINED else ""
        text = f"undetermined: {'; '.join(silent[:SHOWN_UNDETERMINED])}{more}"
        console.print(text, highlight=False, markup=False, soft_wrap=True)


def _cell(row: Row) -> Text:
    seen = row.declared + row.bent
    count = f" {row.broken:,} of {row.judged:,}" if row.broken else f" {seen:,} of {row.judged:,}" if seen else ""
    count = count or (f" {row.judged:,}" if row.judged else "")
    return Text(row.verdict + count, style=STYLES[row.verdict])


def _print_remarks(console: Console, table: Table) -> None:
    remarks = [f"cannot be run: {table.unusable}"] if table.unusable else []
    remarks += [f"scope {scope} cannot be run: {why}" for scope, why in sorted(table.unsupported.items())]
    remarks += [f"stale entry of the baseline: {what}" for what in table.stale]
    remarks += [f"expired entry of the baseline: {what}" for what in table.expired]
    if table.failures:
        case, what = table.failures[0]
        remarks.append(f"{len(table.failures)} runs ended early, the first ({case}): {what}")
    if table.problems:
        case, what = table.problems[0]
        remarks.append(f"{len(table.problems)} runs were not judged to their end, the first ({case}): {what}")
    differing = sum(table.differing.values())
    if differing:
        remarks.append(
            f"{differing} of {table.runs} runs do something that the followed profile does not predict (no violation)"
        )
    for remark in remarks:
        console.print(f"vLLM {table.version}: {remark}", highlight=False, markup=False, soft_wrap=True)


def _last_line(
    found: Sequence[_Named], tables: Sequence[Table], compared: Compared | None, options: Options, report: Path | None
) -> str:
    """Return the command that shows the first finding again; without one, the command itself."""
    order = list(zip(found, tables, strict=True))
    for one, table in reversed(order) if compared is not None else order:
        for finding in table.findings:
            if compared is None or finding.law in compared.new:
                file = None if report is None else report / f"vllm-{table.version}" / f"{finding.law}{pages.SCRIPT_ENDING}"
                return pages.reproduce(one.asked, finding, file)
    names = " ".join(one.asked for one in found[:1])
    if len(found) > 1:
        names = f"--versions {','.join(table.version for table in tables)}"
    words = [f"--seed {options.seed}", f"--steps {options.steps}"] + (["--quick"] if options.quick else [])
    words += [f"--scope {options.scope}"] if options.scope else []
    return " ".join(["kvproof conform vllm", names, *words, *(f"--law {law}" for law in options.laws)])


# --- adapter ---------------------------------------------------------------------------------------------------------


@command.command("adapter", short_help="Judge an adapter MODULE:ATTRIBUTE (docs/adapters.md).")
@click.argument("target", metavar="MODULE:ATTRIBUTE")
@click.option("--seed", default=0, show_default=True, help="The same seed gives the same result.")
@click.option("--law", "laws", multiple=True, metavar="ID", help="Judge only this law, or all of a family; may be repeated.")
@click.option("--scope", "names", multiple=True, metavar="NAME", help="Only this scope of the check; may be repeated.")
@click.option("--walks", type=click.IntRange(1), metavar="N", help="Walks per scope.")
@click.option("--steps", type=click.IntRange(1), metavar="N", help="Actions per walk.")
@click.option("--policy", "policies", multiple=True, metavar="FIELD=VALUE", help="A setting that the implementation declares.")
@click.option("--isolation/--no-isolation", default=True, help="Run the adapter in a process of its own (default: yes).")
@click.option("--report", "folder", type=click.Path(path_type=Path), metavar="DIR", help="Write report and counterexamples.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def adapter(
    target: str,
    seed: int,
    laws: tuple[str, ...],
    names: tuple[str, ...],
    walks: int | None,
    steps: int | None,
    policies: tuple[str, ...],
    isolation: bool,
    folder: Path | None,
    as_json: bool,
) -> ExitCode:
    """Judge the adapter MODULE:ATTRIBUTE, an object or something that returns one when it is called without arguments.

    Exit 0: no law is refuted, and at least one holds; others may be undetermined, which the verdict counts. Exit 2: a law is
    refuted. Exit 3: no law is refuted, but one that was asked for, or all of them, is undetermined, or the adapter could not be
    judged properly (a `problem:`).
    """
    from kvproof.spec.conformance import api

    subject = _loaded(target)
    if folder is not None:
        output.make_folder(folder)
    told = Told("conform adapter", quiet=as_json)
    try:
        report = api.check_all_laws(
            subject,  # type: ignore[arg-type]  # what it is, is found out by using it
            laws=laws or None,
            scopes=names or None,
            seed=seed,
            walks=walks,
            steps=steps,
            policies=policies,
            isolation=isolation,
            progress=told.doing,
        )
    except AdapterError as error:
        raise UserError(f"{target} cannot be judged: {error}") from error
    finally:
        told.end()
    written = [] if folder is None else adapter_files.write(report, folder)
    verdict = _adapter_verdict(report, laws)
    if as_json:
        click.echo(json.dumps(report.as_dict(), indent=1, sort_keys=True))
        return verdict
    click.echo(report.text())
    click.echo()
    for file in written:
        click.echo(f"file: {file}")
    click.echo(f"verdict: {_adapter_words(report, verdict)}")
    click.echo(_again(target, report, laws, names, walks, steps, policies, isolation))
    return verdict


def _adapter_verdict(report: Report, laws: Sequence[str]) -> ExitCode:
    """Return the exit status: undetermined only if a law that was asked for is, or all of them, or the judging failed."""
    if report.refuted:
        return ExitCode.REFUTED
    open_laws = [law for law in report.laws if law.verdict.value == "undetermined"]
    if report.problems or (open_laws and (laws or len(open_laws) == len(report.laws))):
        return ExitCode.UNDETERMINED
    return ExitCode.HOLDS


def _adapter_words(report: Report, verdict: ExitCode) -> str:
    """Return the verdict in words: what is undetermined is never counted as held."""
    undetermined = sum(law.verdict.value == "undetermined" for law in report.laws)
    held = len(report.laws) - undetermined - len(report.refuted)
    left = f"{counted(undetermined, 'law')} undetermined: nothing is said of them" if undetermined else "none undetermined"
    if verdict is ExitCode.REFUTED:
        return f"refuted ({counted(len(report.refuted), 'law')}); {held} held where they were judged, {left}"
    if verdict is ExitCode.HOLDS:
        return f"nothing refuted: {counted(held, 'law')} held where they were judged, {left}"
    if report.problems:
        return f"undetermined: not everything could be judged (see problem); {left}"
    return f"undetermined: {left}"


def _again(
    target: str,
    report: Report,
    laws: Sequence[str],
    names: Sequence[str],
    walks: int | None,
    steps: int | None,
    policies: Sequence[str],
    isolation: bool,
) -> str:
    """Return the line that gives the first refuted law again; without one, the command itself."""
    first = shortest_first(report.refuted)[:1]
    words = ["kvproof", "conform", "adapter", target, "--seed", str(report.seed)]
    examples = [law.counterexample.scope for law in first if law.counterexample is not None and law.counterexample.scope]
    for option, values in (
        ("law", [law.law for law in first] or laws),
        ("scope", examples or names),
        ("walks", [walks] if walks else []),
        ("steps", [steps] if steps else []),
        ("policy", policies),
    ):
        words += [word for value in values for word in (f"--{option}", str(value))]
    return shlex.join(words + ([] if isolation else ["--no-isolation"]))


def _loaded(target: str) -> object:
    """Return the adapter that MODULE:ATTRIBUTE names. Raises UserError."""
    module, _, attribute = target.partition(":")
    if not module or not attribute:
        raise UserError(f"{target!r}: name a module and an attribute of it, such as my_package.my_adapter:Adapter")
    if "/" in module or module.endswith(".py"):
        raise UserError(f"{target}: {module} is a path; name the module by dots, such as {_dotted(module)}:{attribute}")
    if module.startswith("."):
        raise UserError(
            f"{target}: {module} is relative; name the module with its package, such as my_package{module}:{attribute}"
        )
    found: object = _imported(target, module)
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise UserError(f"{target}: {module} has no {attribute}") from None
    if not isinstance(found, type) and (not callable(found) or hasattr(found, "perform")):
        return found
    try:
        return found()
    except Exception as error:
        words = "name an adapter, or a class or function that makes one when it is called without arguments"
        raise UserError(f"{target} cannot be called without arguments: {describe_crash(error)}; {words}") from error
    except SystemExit as error:
        raise UserError(f"{target} ended the program (exit status {error.code}) instead of returning an adapter") from error


def _dotted(path: str) -> str:
    return ".".join(part for part in path.removesuffix(".py").split("/") if part not in ("", ".", "..")) or "my_module"


def _imported(target: str, module: str) -> object:
    """Import a module. Raises UserError for one that is not there or cannot be imported."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and module.startswith(error.name):
            raise UserError(f"{target}: there is no module {error.name}; is its folder on PYTHONPATH?") from error
        raise UserError(f"{target}: {module} cannot be imported: {error}") from error
    except Exception as error:
        raise UserError(f"{target}: {module} cannot be imported: {describe_crash(error)}") from error
    except SystemExit as error:
        raise UserError(f"{target}: {module} ended the program (exit status {error.code}) when it was imported") from error
