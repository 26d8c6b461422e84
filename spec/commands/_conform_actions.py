"""``kvproof conform actions``: what an adapter is asked to perform (docs/actions.md)."""

from __future__ import annotations

from pathlib import Path

import click

from kvproof.spec import output
from kvproof.spec.conformance import action_page


@click.command("actions", short_help="List the actions that an adapter performs, and what they mean.")
@click.option("--write", type=click.Path(path_type=Path), metavar="FILE", help="Write the list as Markdown to FILE.")
def actions(write: Path | None) -> None:
    """List every action with its fields: what it is, when it comes, and what a cache has to do."""
    if write is None:
        click.echo(action_page.as_text())
    else:
        output.write_atomically(write, action_page.as_markdown())
