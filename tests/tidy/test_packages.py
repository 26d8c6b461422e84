"""The package lists of pyproject.toml against the folders: a wheel never misses a subpackage."""

from __future__ import annotations

import os

import pytest

from tests.tidy.sources import ROOMS, ROOT, pyproject


def folders_with_code() -> dict[str, str]:
    """Package name -> folder, for every folder of the four rooms that holds Python files."""
    found = {}
    for room in ROOMS:
        for folder, _, files in os.walk(ROOT / room):
            if any(file.endswith(".py") for file in files):
                path = os.path.relpath(folder, ROOT).replace(os.sep, "/")
                found["kvproof." + path.replace("/", ".")] = path
    return found


def test_both_package_lists_equal_the_folders():
    tool = pyproject()["tool"]["setuptools"]
    folders = folders_with_code()
    assert sorted(tool["packages"]) == sorted(folders)
    assert tool["package-dir"] == folders


def test_every_package_has_an_init_file():
    missing = [path for path in folders_with_code().values() if not (ROOT / path / "__init__.py").is_file()]
    assert missing == []


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_is_typed_and_linked(room):
    assert (ROOT / room / "py.typed").is_file()
    link = ROOT / "tests/_path/kvproof" / room
    assert os.readlink(link) == f"../../../{room}"
    assert link.resolve() == ROOT / room


def test_kvproof_itself_stays_a_namespace():
    assert sorted(path.name for path in (ROOT / "tests/_path/kvproof").iterdir()) == sorted(ROOMS)


def test_every_registered_command_has_its_module():
    for command, value in pyproject()["project"]["entry-points"]["kvproof.commands"].items():
        module = value.partition(":")[0]
        file = ROOT / (module.removeprefix("kvproof.").replace(".", "/") + ".py")
        assert file.is_file(), f"{command}: {value}"


def test_the_pytest_plugins_are_registered_and_have_their_modules():
    plugins = pyproject()["project"]["entry-points"]["pytest11"]
    recording = "kvproof.spec.recording_plugin"
    assert plugins == {"kvproof": "kvproof.spec.pytest_plugin", recording: recording}
    for module in plugins.values():
        assert (ROOT / f"{module.removeprefix('kvproof.').replace('.', '/')}.py").is_file()


def test_every_command_module_is_registered():
    registered = {value.partition(":")[0] for value in pyproject()["project"]["entry-points"]["kvproof.commands"].values()}
    modules = {
        f"kvproof.spec.commands.{path.stem}"
        for path in (ROOT / "spec/commands").glob("*.py")
        if path.stem != "__init__" and not path.stem.startswith("_")
    }
    assert modules <= registered


def test_the_lock_pins_everything_the_project_asks_for():
    lines = (ROOT / "requirements/lock.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in lines if "==" in line}
    project = pyproject()["project"]
    wanted = [*project["dependencies"], *(entry for extra in project["optional-dependencies"].values() for entry in extra)]
    names = {entry.partition(">=")[0].partition("[")[0].lower() for entry in wanted}
    assert names - {"kvproof", "torch"} <= pinned
    assert "torch" not in pinned, "torch has its own file, so that another one can be given"
