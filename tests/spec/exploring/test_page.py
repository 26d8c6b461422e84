"""The session on the explorer's page is what the program prints."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from kvproof.spec import cli

PAGE = Path(__file__).resolve().parents[3] / "docs/explore.md"
SESSIONS = re.findall(r"```console\n\$ (kvproof explore[^\n]*)\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


def without_versions(text):
    """The text without what depends on who runs it."""
    return re.sub(r"kvproof \S+, Python \S+", "kvproof, Python", text)


@pytest.mark.slow
@pytest.mark.parametrize(("command", "printed"), SESSIONS, ids=[command for command, _ in SESSIONS])
def test_a_session_is_what_the_program_prints(command, printed, capsys):
    cli.main(shlex.split(command)[1:])
    assert without_versions(capsys.readouterr().out) == without_versions(printed)


def test_the_page_has_a_session_that_holds_and_one_with_a_fault():
    assert len(SESSIONS) == 2
    assert "--fault" in SESSIONS[1][0]
