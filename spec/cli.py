"""The command line: finds the commands, runs one, and turns its outcome into an exit status.

A command lives in its own module, offers a click command under an entry point of the group `kvproof.commands`, and says its
verdict by returning an `ExitCode` (None is HOLDS) or by `ctx.exit(code)`. It raises `UserError` for what the user can put
right. Exit status 2 means refuted and nothing else; click's own use of 2 for a wrong command line becomes 1 here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from kvproof.spec import distribution
from kvproof.spec.exits import CommandEnded, ExitCode, UserError
from kvproof.spec.report.legible import legible

# What the system says when standard output leads nowhere: reader gone, disk full, quota, device.
OUTPUT_FAILED = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO)


class Commands(click.Group):
    """A group whose members are the registered entry points, loaded when they are named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all registered commands, loadable or not."""
        return sorted({*super().list_commands(ctx), *distribution.command_entry_points()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name; one that cannot be loaded is replaced by one that says why."""
        known = super().get_command(ctx, cmd_name)
        point = distribution.command_entry_points().get(cmd_name)
        if known is not None or point is None:
            return known
        try:
            command = point.load()
        except ModuleNotFoundError as error:
            why = distribution.missing_extra(error) or f"cannot be loaded: {error}"
            return _unavailable(cmd_name, why)
        except ImportError as error:
            return _unavailable(cmd_name, f"cannot be loaded: {error}")
        if not isinstance(command, click.Command):
            return _unavailable(cmd_name, f"cannot be loaded: {point.value} is not a click command")
        return command


def _unavailable(name: str, why: str) -> click.Command:
    """A stand-in that takes any arguments, `--help` included, and fails with the reason."""

    def explain(**_: Any) -> NoReturn:
        raise UserError(f"{name} {why}")

    return click.Command(
        name,
        callback=explain,
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
        add_help_option=False,
        short_help=f"({why})",
    )


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(distribution.version(), prog_name="kvproof", message="%(prog)s %(version)s")
def root() -> None:
    """An executable reference for hybrid KV-cache block management: the model, its laws, and the engines that check them.

    Exit status: 0 holds, 1 usage or internal error, 2 refuted, 3 undetermined.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (that of the process by default) and return its exit status, one of `ExitCode`.

    Only a command that runs another one for the user passes that one's status on.
    """
    if sys.stdout is None:
        # started with a closed standard output: there is nobody to tell a result
        click.echo("Error: standard output is closed; redirect it to a file or to /dev/null", err=True)
        return ExitCode.ERROR
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except OSError as error:
        # `kvproof laws | head` ends quietly; a full disk is told. The rest of the output has nowhere to go, and without
        # another target the interpreter would complain once more when it closes the stream.
        if error.errno != errno.EPIPE:
            click.echo(f"Error: the output cannot be written: {(error.strerror or str(error)).lower()}", err=True)
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.ERROR)
    return int(code)


def _run(arguments: Sequence[str] | None) -> int:
    try:
        outcome = root.main(args=None if arguments is None else list(arguments), prog_name="kvproof", standalone_mode=False)
        return ExitCode.HOLDS if outcome is None else ExitCode(outcome)
    except CommandEnded as ended:
        return ended.code
    except click.ClickException as error:
        error.show()
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted: nothing was decided.", err=True)
    except UserError as error:
        click.echo(f"Error: {legible(str(error))}", err=True)
    except ModuleNotFoundError as error:
        advice = distribution.missing_extra(error)
        if advice is None:
            _internal_error()
        else:
            click.echo(f"Error: this command {advice}", err=True)
    except SystemExit as error:
        # not ours: a library that ends the process; only a plain success may pass
        return ExitCode.HOLDS if error.code in (None, 0) else ExitCode.ERROR
    except OSError as error:
        if error.errno in OUTPUT_FAILED and error.filename is None:
            raise
        _internal_error()
    except Exception:
        _internal_error()
    return ExitCode.ERROR


def _internal_error() -> None:
    traceback.print_exc()
    click.echo(f"Internal error in kvproof {distribution.version()}: please report it with the lines above.", err=True)
