"""What docs/adapters.md shows is true: its Python runs, in order, its test files run in pytest, its options exist."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import attrs
import pytest

from examples.adapter import PagedCacheAdapter
from kvproof.core.config import Config, Group
from kvproof.spec import cli, pytest_plugin
from kvproof.spec.conformance.adapter import Shows, Unsupported
from kvproof.spec.conformance.api import check_all_laws
from kvproof.spec.engines import scopes
from kvproof.spec.engines.scopes import Scope
from kvproof.spec.exits import ExitCode
from tests.tidy.sources import ROOT

pytest_plugins = ["pytester"]

PAGE = (ROOT / "docs/adapters.md").read_text(encoding="utf-8")
BLOCKS = [block.split("```")[0] for block in PAGE.split("```python\n")[1:]]
FILES = [block for block in BLOCKS if block.startswith("# test_")]


def test_there_are_blocks_of_both_kinds() -> None:
    assert len(FILES) >= 1
    assert len(BLOCKS) - len(FILES) >= 4


@pytest.mark.slow
def test_the_python_of_the_page_runs_in_order_and_prints_what_the_page_quotes() -> None:
    names: dict[str, object] = {}
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        for block in BLOCKS:
            if block not in FILES:
                exec(compile(block, "docs/adapters.md", "exec"), names)
    printed = out.getvalue()
    for quoted in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL):
        for line in quoted.splitlines():
            assert line.strip() in ("", "...") or line in printed, f"not printed: {line}"


def started(block: int) -> Any:
    """Return the class that the first block of the page makes; nothing is judged."""
    names: dict[str, Any] = {}
    exec(compile(BLOCKS[block].split("\n\nBUDGET")[0], "docs/adapters.md", "exec"), names)
    return names["Mine"]


def supports(adapter: Any, scope: Scope) -> bool:
    """Tell whether an adapter starts under the configuration of a scope."""
    try:
        adapter.start(scope.config())
    except Unsupported:
        return False
    return True


def test_the_tutorial_starts_under_what_the_example_starts_under_with_one_group_of_full_attention() -> None:
    mine, example = started(0)(), PagedCacheAdapter()
    alone = [scope for scope in scopes.ALL if [group.kind for group in scope.config().groups] == ["full_attention"]]
    taken = {scope.name for scope in scopes.ALL if supports(mine, scope)}
    assert taken == {scope.name for scope in alone if supports(example, scope)}
    assert "fa4" in taken
    assert len(taken) < len(alone)


def test_the_fields_to_refuse_are_those_that_both_adapters_look_at() -> None:
    table = PAGE.split("go through these fields of `Config`")[1].split("\n\n`caching`")[0]
    listed = {name for row in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    known = {field.name for field in attrs.fields(Config)} | {field.name for field in attrs.fields(Group)}
    assert listed <= known
    for source in (BLOCKS[0], (ROOT / "examples/adapter.py").read_text(encoding="utf-8")):
        read = source.split("beyond = {")[1].split("raise Unsupported")[0]
        looked = set(re.findall(r"(?:config|group)\.(\w+)", read)) | {"groups"}
        assert looked & known - {"block_size", "sharded", "dcp_size"} >= listed


@pytest.mark.slow
def test_the_last_adapter_of_the_tutorial_is_not_refuted_wherever_it_starts() -> None:
    names: dict[str, Any] = {}
    for block in BLOCKS[:3]:
        code = block.split("\n\nBUDGET")[0].split("\n\nreport =")[0]
        exec(compile(code, "docs/adapters.md", "exec"), names)
    report = check_all_laws(names["Whole"](), walks=1, steps=120)
    assert not report.refuted
    assert not report.problems
    assert [scope.name for scope in report.scopes if not scope.skipped] == [
        scope.name for scope in scopes.ALL if supports(names["Whole"](), scope)
    ]


@pytest.mark.parametrize("block", FILES, ids=[block.splitlines()[0] for block in FILES])
def test_the_test_files_of_the_page_run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, block: str) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    pytester.makepyfile(test_page=block)
    result = pytester.runpytest_inprocess(
        "-p", "no:kvproof", "-p", "kvproof.spec.pytest_plugin", "-p", "no:xdist", "-p", "no:cacheprovider"
    )
    counts = result.parseoutcomes()
    assert counts.get("passed", 0) > 20
    assert not counts.get("failed")
    assert not counts.get("errors")


def test_every_option_of_the_plugin_is_on_the_page_and_no_other() -> None:
    known = {f"--kvproof-{name}" for name, *_ in pytest_plugin.OPTIONS} | {"--kvproof-strict"}
    assert set(re.findall(r"--kvproof-[a-z]+", PAGE)) == known


def test_every_capability_is_on_the_page_and_no_other() -> None:
    table = PAGE.split("## What can be shown")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `([A-Z_]+)`", table, re.MULTILINE)) == {capability.name for capability in Shows}


def test_the_command_of_the_page_runs_and_writes_its_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (line,) = re.findall(r"^PYTHONPATH=\. kvproof (conform adapter .+)$", PAGE, re.MULTILINE)
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.chdir(tmp_path)
    assert cli.main([*line.split(), "--walks", "1"]) == ExitCode.HOLDS
    out = capsys.readouterr().out
    assert "\nverdict: nothing refuted: " in out
    written = {"paged_cache.txt", "paged_cache.json", "paged_cache.html", "index.html"}
    assert {path.name for path in (tmp_path / "found").iterdir()} == written


def test_the_sizes_that_a_counterexample_names_are_explained() -> None:
    said = PAGE.split("### What the report says")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| ([A-Z]) \|", said, re.MULTILINE)) == set("NISHA")
