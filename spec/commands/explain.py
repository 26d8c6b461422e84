"""``kvproof explain``: what a second request can resume from, and which rule removed every other boundary."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import click
from msgspec import structs
from rich.console import Console
from rich.table import Table

from kvproof.spec import output
from kvproof.spec.commands.check import wide_console
from kvproof.spec.deployments import catalogue, model, page, read
from kvproof.spec.deployments.schema import Deployment, Host, Mode, Number, Retention
from kvproof.spec.exits import UserError
from kvproof.spec.explain import answer, divergence, document, host_text, hosts, text
from kvproof.spec.explain.scenario import Question

TOKENS = click.IntRange(min=1)


@click.command("explain", short_help="Explain what a second request can hit on a real deployment.")
@click.option("--deployment", metavar="NAME", help="A shipped deployment; --list names them.")
@click.option("--config", "file", type=click.Path(path_type=Path), metavar="FILE", help="A deployment file of your own.")
@click.option("--prompt", type=TOKENS, metavar="N", help="Tokens of the first prompt.")
@click.option("--resend", type=TOKENS, metavar="M", help="Tokens of the second prompt (default: as the first).")
@click.option("--shared", type=click.IntRange(min=0), metavar="K", help="Leading tokens that they share (default: all).")
@click.option("--step-tokens", type=TOKENS, metavar="T", help="Step budget (default: the deployment's).")
@click.option("--gate", type=click.Choice(["configured", "closed"]), default="configured", help="Close fine-grained hits.")
@click.option("--retention", metavar="R", help="dense, sparse or a multiple of S (default: the deployment's).")
@click.option(
    "--blocks", type=click.IntRange(min=2), metavar="B", help="Pool size (default and at most: enough for everything)."
)
@click.option("--host", type=click.Choice(["eager", "lazy", "none"]), help="A host tier, or none (default: the deployment's).")
@click.option(
    "--host-blocks",
    type=click.IntRange(min=2),
    metavar="B",
    help="Its size (default: the deployment's, or enough for everything).",
)
@click.option("--between", type=click.IntRange(min=0), default=0, metavar="N", help="Tokens of an unrelated prompt in between.")
@click.option("--evict", multiple=True, metavar="GROUP@TOKENS", help="Take a key away before the second prompt; repeatable.")
@click.option("--sources", "with_sources", is_flag=True, help="Say where every number comes from.")
@click.option("--list", "list_only", is_flag=True, help="List the shipped deployments.")
@click.option("--write", type=click.Path(path_type=Path), metavar="FILE", help="With --list: write the list as Markdown.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write one HTML page with pictures.")
def command(
    deployment: str | None,
    file: Path | None,
    prompt: int | None,
    resend: int | None,
    shared: int | None,
    step_tokens: int | None,
    gate: str,
    retention: str | None,
    blocks: int | None,
    host: str | None,
    host_blocks: int | None,
    between: int,
    evict: tuple[str, ...],
    with_sources: bool,
    list_only: bool,
    write: Path | None,
    as_json: bool,
    html: Path | None,
) -> None:
    """Run a prompt on the model of a deployment, look a second one up, and explain the hit.

    For each group every candidate boundary is named with the rule that removed it, down to the joint hit. Without --prompt
    only the geometry is shown: block sizes, rows, alignment, the gate of fine-grained hits and why it is open or closed.
    """
    if list_only:
        _list(as_json, write)
        return
    if write is not None:
        raise UserError("--write belongs to --list: add it, or leave --write out")
    if html is not None:
        if prompt is None or as_json:
            raise UserError("--html FILE shows an answer: give --prompt N as well, and leave --json out")
        output.check_writable(html)
    chosen = _with_host(_with_retention(_chosen(deployment, file), retention), host, host_blocks)
    budget = chosen.settings.step_tokens.value if step_tokens is None else step_tokens
    if prompt is None:
        if resend is not None or shared is not None or between or evict:
            raise UserError("give --prompt N as well: without a first prompt there is nothing to hit")
        _show_geometry(chosen, budget, gate == "closed", with_sources, as_json)
        return
    second = prompt if resend is None else resend
    most = min(prompt, second)
    question = Question(prompt, second, most if shared is None else shared, budget, between, _evicted(chosen, evict))
    _show_answer(chosen, question, blocks, gate == "closed", with_sources, as_json, html)


def _chosen(name: str | None, file: Path | None) -> Deployment:
    if (name is None) == (file is None):
        raise UserError("give --deployment NAME or --config FILE, one of them; `kvproof explain --list` names what ships")
    if file is not None:
        return read.read(file)
    assert name is not None
    return catalogue.find(name)


def _with_retention(deployment: Deployment, given: str | None) -> Deployment:
    """Return the deployment with another retention, as it is written in a file, or sparse for 0. Raises UserError."""
    if given is None:
        return deployment
    asked = "0" if given == "sparse" else given
    if asked != "dense" and not (asked.isascii() and asked.isdecimal()):
        raise UserError(f"--retention {given}: write dense, sparse or a number of tokens, 0 (sparse) or a multiple of S")
    value = Retention(value="dense" if asked == "dense" else int(asked), assumed="asked with --retention")
    return structs.replace(deployment, settings=structs.replace(deployment.settings, retention=value))


def _with_host(deployment: Deployment, mode: str | None, blocks: int | None) -> Deployment:
    """Return the deployment with another host tier, with ``mode`` none without one. Raises UserError."""
    known = deployment.settings.host
    if mode == "none" or (mode is None and known is None):
        if blocks is not None:
            raise UserError("--host-blocks is the size of a host tier: add --host eager or --host lazy")
        host = None
    else:
        assumed = "asked with --host"
        chosen = (
            known.mode
            if mode is None and known is not None
            else Mode(value="lazy" if mode == "lazy" else "eager", assumed=assumed)
        )
        size = None if known is None else known.blocks
        host = Host(mode=chosen, blocks=size if blocks is None else Number(value=blocks, assumed="asked with --host-blocks"))
    return structs.replace(deployment, settings=structs.replace(deployment.settings, host=host))


def _evicted(deployment: Deployment, given: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    """Return (group, boundary) for each GROUP@TOKENS; a group is a name, or a number counted from 0. Raises UserError."""
    names = model.group_names(deployment)
    found = []
    for entry in given:
        name, _, boundary = entry.rpartition("@")
        known = [index for index, known in enumerate(names) if name.lower() in (known.lower(), str(index))]
        if not known or not boundary.isdecimal():
            raise UserError(f"--evict {entry}: write GROUP@TOKENS, for example {names[-1]}@16; groups: {', '.join(names)}")
        found.append((known[0], int(boundary)))
    return tuple(found)


def _show_geometry(deployment: Deployment, budget: int, closed: bool, with_sources: bool, as_json: bool) -> None:
    found = answer.geometry(deployment, budget, closed=closed)
    if as_json:
        click.echo(
            json.dumps({"deployment": document.of_deployment(deployment), "geometry": document.of_geometry(found)}, indent=1)
        )
        return
    console = wide_console()
    text.head(console, deployment)
    text.geometry(console, found)
    if with_sources:
        text.sources(console, deployment)
    else:
        console.print()
        console.print("--sources says where each number comes from; --prompt N --resend M asks what a second prompt hits.")


def _show_answer(
    deployment: Deployment,
    question: Question,
    blocks: int | None,
    closed: bool,
    with_sources: bool,
    as_json: bool,
    html: Path | None,
) -> None:
    stderr = Console(stderr=True)
    busy = stderr.status("computing the prompts on the model") if stderr.is_terminal else contextlib.nullcontext()
    with busy:
        found = answer.explain(deployment, question, blocks=blocks, closed=closed)
        other = answer.compare_closed(deployment, question, found, blocks)
        host = hosts.explain(found)
        cost = divergence.explain(found)
    if html is not None:
        from kvproof.spec.report import explained  # jinja2 takes longer to load than most commands need

        output.write_atomically(html, explained.render(found, other, host, cost))
        click.echo(str(html))
        return
    if as_json:
        click.echo(json.dumps(document.of_answer(found, other, host, cost), indent=1))
        return
    console = wide_console()
    text.head(console, deployment)
    text.geometry(console, found)
    text.story(console, found, other)
    if cost is not None:
        host_text.divergence(console, cost)
    if host is not None:
        host_text.host(console, found, host)
    text.legend(
        console,
        found.classes + tuple(item for asked in host.lookups[1:] for item in asked.found.classes) if host else found.classes,
    )
    if with_sources:
        text.sources(console, deployment)


def _list(as_json: bool, write: Path | None) -> None:
    deployments = catalogue.everything()
    if write is not None:
        output.write_atomically(write, page.as_markdown(deployments))
    if as_json:
        rows = [
            document.of_deployment(item) | {"lacks": model.lacks(item), "host": page.host(item) or None} for item in deployments
        ]
        click.echo(json.dumps(rows, indent=1))
    elif write is None:
        table = Table(title=f"{len(deployments)} deployments", title_justify="left")
        for head in ("name", "what", "groups", "E", "S", "hits end at", "host tier", "numbers", "covered"):
            table.add_column(head, no_wrap=head == "name", justify="right" if head in ("S", "hits end at") else "left")
        for item in deployments:
            table.add_row(*page.cells(item))
        wide_console().print(table)
