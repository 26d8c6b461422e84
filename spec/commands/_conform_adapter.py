"""``kvproof conform adapter``: an implementation behind an adapter, judged from the command line (docs/adapters.md)."""

from __future__ import annotations

import importlib
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from kvproof.spec import output
from kvproof.spec.conformance import files as adapter_files
from kvproof.spec.conformance.adapter import AdapterError
from kvproof.spec.conformance.budget import HOST_STEPS, STEPS, WALKS
from kvproof.spec.conformance.reports import Report, counted
from kvproof.spec.exits import ExitCode, UserError
from kvproof.spec.judge import describe_crash
from kvproof.spec.progress import Told


@click.command("adapter", short_help="Judge an adapter MODULE:ATTRIBUTE (docs/adapters.md).")
@click.argument("target", metavar="MODULE:ATTRIBUTE")
@click.option("--seed", default=0, show_default=True, help="The same seed gives the same result.")
@click.option("--law", "laws", multiple=True, metavar="ID", help="Judge only this law, or all of a family; may be repeated.")
@click.option("--scope", "names", multiple=True, metavar="NAME", help="Only this scope of the check; may be repeated.")
@click.option("--walks", type=click.IntRange(1), metavar="N", help=f"Walks per scope; default {WALKS}.")
@click.option(
    "--steps",
    type=click.IntRange(1),
    metavar="N",
    help=f"Actions per walk; default {STEPS}, with a host tier {HOST_STEPS}.",
)
@click.option("--policy", "policies", multiple=True, metavar="FIELD=VALUE", help="A setting that the implementation declares.")
@click.option("--known", multiple=True, metavar="ID", help="A law known to be refuted: no exit 2 for it; may be repeated.")
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
    known: tuple[str, ...],
    isolation: bool,
    folder: Path | None,
    as_json: bool,
) -> ExitCode:
    """Judge the adapter MODULE:ATTRIBUTE, an object or something that returns one when it is called without arguments.

    Exit 0: no law is refuted, and at least one holds; others may be undetermined, which the verdict counts. Exit 2: a law is
    refuted that is not `--known`. Exit 3: no such law is refuted, but one that was asked for, or all of them, is undetermined,
    a known one holds again, or the adapter could not be judged properly (a `problem:`). An interrupt ends the search and prints
    what there is.
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
            announce=told.say,
            known=known,
            interruptible=True,
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
    if report.unexpected:
        return ExitCode.REFUTED
    if report.mended:
        return ExitCode.UNDETERMINED
    open_laws = [law for law in report.laws if law.verdict.value == "undetermined"]
    if report.problems or (open_laws and (laws or len(open_laws) == len(report.laws))):
        return ExitCode.UNDETERMINED
    return ExitCode.HOLDS


def _adapter_words(report: Report, verdict: ExitCode) -> str:
    """Return the verdict in words: what is undetermined is never counted as held."""
    undetermined = sum(law.verdict.value == "undetermined" for law in report.laws)
    held = len(report.laws) - undetermined - len(report.refuted)
    left = f"{counted(undetermined, 'law')} undetermined: nothing is said of them" if undetermined else "none undetermined"
    known = [law.law for law in report.refuted if law.law in report.known]
    left += f"; refuted as known: {', '.join(known)}" if known else ""
    left += "".join(f"; {law.law} is known to be refuted and holds: leave --known {law.law} out" for law in report.mended)
    if verdict is ExitCode.REFUTED:
        return f"refuted ({counted(len(report.unexpected), 'law')}); {held} held where they were judged, {left}"
    if verdict is ExitCode.HOLDS:
        nothing = "nothing refuted that is not known" if known else "nothing refuted"
        return f"{nothing}: {counted(held, 'law')} held where they were judged, {left}"
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
    first = report.in_order[:1]
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
    line = shlex.join(words + ([] if isolation else ["--no-isolation"]))
    path = path_needed(target.partition(":")[0])
    return f"PYTHONPATH={shlex.quote(path)} {line}" if path else line


def path_needed(module: str) -> str:
    """Return the PYTHONPATH without which the command would not find a module, empty for one that is installed.

    The one that is set, if the module was found by it; the current folder, if it was found there because Python was started
    with ``-m``, which the command is not.
    """
    spec = getattr(sys.modules.get(module.partition(".")[0]), "__spec__", None)
    if spec is None:
        return ""
    places = spec.submodule_search_locations or ([spec.origin] if spec.has_location else [])
    folders = [Path(place).resolve().parent for place in places]
    given = os.environ.get("PYTHONPATH", "")
    if any(Path(entry).resolve() in folders for entry in given.split(os.pathsep) if given):
        return given
    return "." if Path.cwd() in folders else ""


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
