"""The code of a release: found, fetched through pip from a folder of wheels, checked, unpacked."""

from __future__ import annotations

import hashlib
import importlib.util
import zipfile
from pathlib import Path

import pytest

from kvproof.spec.vllm import releases
from kvproof.spec.vllm.releases import (
    NoNetwork,
    NoSpace,
    NotACheckout,
    ReleaseError,
    UnknownRelease,
    WrongHash,
    find,
)

VERSION = "9.8.7"


def wheel(folder: Path, version: str = VERSION, tag: str = "cp38-abi3-manylinux_2_28_x86_64", package: str = "vllm") -> Path:
    """A tiny wheel that pip accepts: one module, one file that is no Python, metadata."""
    folder.mkdir(exist_ok=True)
    path = folder / f"vllm-{version}-{tag}.whl"
    info = f"vllm-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{package}/__init__.py", f"VERSION = {version!r}\n")
        archive.writestr(f"{package}/v1/core/scheduler.py", "# code\n")
        archive.writestr(f"{package}/_C.abi3.so", b"\x7fELF")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: false\nTag: {tag}\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path, monkeypatch):
    """The user's own pip configuration: a folder of wheels and no index."""
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    (tmp_path / "wheels").mkdir()
    return tmp_path / "wheels"


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def pin(monkeypatch, path: Path, digest: str | None = None) -> None:
    found = hashlib.sha256(path.read_bytes()).hexdigest() if digest is None else digest
    monkeypatch.setattr(releases, "_pins", lambda: {VERSION: [releases._Pin(path.name, found)]})


def test_a_pinned_wheel_is_fetched_checked_and_unpacked_without_what_is_no_python(index, cache, monkeypatch):
    pin(monkeypatch, wheel(index))
    said: list[str] = []
    release = find(VERSION, cache=cache, say=said.append)
    assert release.version == VERSION
    assert release.origin == "download"
    assert release.trusted.endswith(", pinned")
    kept = {path.relative_to(release.folder).as_posix() for path in release.folder.rglob("*") if path.is_file()}
    assert kept == {"vllm/__init__.py", "vllm/v1/core/scheduler.py", f"vllm-{VERSION}.dist-info/METADATA", "release.json"}
    assert [path.name for path in (cache / "vllm").iterdir()] == [VERSION]
    assert len(said) == 1


def test_the_second_time_nothing_is_fetched(index, cache, monkeypatch):
    path = wheel(index)
    pin(monkeypatch, path)
    first = find(VERSION, cache=cache)
    path.unlink()
    said: list[str] = []
    assert find(VERSION, cache=cache, say=said.append) == first
    assert said == []


def test_an_unknown_wheel_is_trusted_on_first_use_and_that_is_said_every_time(index, cache):
    wheel(index)
    for _ in range(2):
        said: list[str] = []
        release = find(VERSION, cache=cache, say=said.append)
        assert release.trusted.endswith("trusted on first use")
        assert "trusted on first use" in said[-1]


def test_a_wheel_that_changed_since_its_first_use_is_refused(index, cache):
    path = wheel(index)
    release = find(VERSION, cache=cache)
    for file in sorted(release.folder.rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    release.folder.rmdir()
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("vllm/more.py", "")
    with pytest.raises(WrongHash, match="at its first use"):
        find(VERSION, cache=cache)
    assert not release.folder.exists()


def test_a_wheel_with_another_hash_than_the_pinned_one_leaves_nothing_behind(index, cache, monkeypatch):
    pin(monkeypatch, wheel(index), "0" * 64)
    with pytest.raises(WrongHash, match="not the published wheel"):
        find(VERSION, cache=cache)
    assert list((cache / "vllm").iterdir()) == []


def test_a_changed_cache_is_noticed(index, cache):
    wheel(index)
    release = find(VERSION, cache=cache)
    (release.folder / "vllm/v1/core/scheduler.py").write_text("# other code\n")
    with pytest.raises(WrongHash, match="remove that folder"):
        find(VERSION, cache=cache)


def test_bytecode_in_the_cache_does_not_matter(index, cache):
    wheel(index)
    release = find(VERSION, cache=cache)
    (release.folder / "vllm/__pycache__").mkdir()
    (release.folder / "vllm/__pycache__/x.cpython-311.pyc").write_bytes(b"x")
    assert find(VERSION, cache=cache) == release


def test_of_two_processes_the_second_takes_what_the_first_unpacked(index, cache, monkeypatch):
    wheel(index)
    unpack = releases._unpack

    def overtaken(path, folder):
        monkeypatch.setattr(releases, "_unpack", unpack)
        find(VERSION, cache=cache)
        unpack(path, folder)

    monkeypatch.setattr(releases, "_unpack", overtaken)
    assert (find(VERSION, cache=cache).folder / "vllm/__init__.py").is_file()
    assert sorted(path.name for path in (cache / "vllm").iterdir()) == [VERSION, "trusted"]


def test_a_version_that_the_index_does_not_have(index, cache):
    wheel(index)
    with pytest.raises(UnknownRelease, match="pip index versions"):
        find("9.9.9", cache=cache)
    assert not (cache / "vllm/9.9.9").exists()


def test_of_many_versions_the_newest_are_named():
    offered = ", ".join(f"0.{minor}.0" for minor in range(300))
    said = f"ERROR: Could not find a version that satisfies the requirement vllm===9.9 (from versions: {offered})\n"
    error = releases._explained("9.9", said + "ERROR: No matching distribution found for vllm===9.9\n")
    assert isinstance(error, UnknownRelease)
    assert "requirement vllm===9.9 (from versions: 288 older ones, 0.288.0, " in str(error)
    assert "0.299.0); ERROR: No matching distribution found for vllm===9.9" in str(error)


def test_a_build_with_a_local_version_is_not_taken_for_the_release(index, cache):
    wheel(index, f"{VERSION}+other")
    with pytest.raises(UnknownRelease):
        find(VERSION, cache=cache)


def test_a_wheel_of_this_platform_alone_is_taken(index, cache):
    wheel(index, tag="py3-none-any")
    assert find(VERSION, cache=cache).version == VERSION


def test_an_index_that_cannot_be_reached(cache, monkeypatch):
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(NoNetwork, match="path of a checkout"):
        find(VERSION, cache=cache)


def test_a_full_disk(index, cache, monkeypatch):
    wheel(index)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(releases, "_unpack", full)
    with pytest.raises(NoSpace, match="KVPROOF_CACHE"):
        find(VERSION, cache=cache)


def test_a_cache_that_is_a_file(index, cache):
    wheel(index)
    cache.write_text("")
    with pytest.raises(NoSpace, match="KVPROOF_CACHE"):
        find(VERSION, cache=cache)


def test_a_file_that_is_no_wheel_and_one_without_the_package(index, cache, tmp_path):
    (tmp_path / "x.whl").write_text("no zip")
    with pytest.raises(ReleaseError, match="is no wheel"):
        releases._unpack(tmp_path / "x.whl", tmp_path / "out")
    wheel(index, package="other")
    with pytest.raises(ReleaseError, match="holds no package"):
        find(VERSION, cache=cache)


def test_no_member_of_a_wheel_leaves_its_folder():
    for name in ("vllm/../../x.py", "/vllm/x.py", "vllm\\..\\x.py", "other/x.py", "vllm/data.json", "a.dist-info/RECORD", ""):
        assert not releases._wanted(name), name
    assert releases._wanted("vllm/x.py")
    assert releases._wanted("vllm-1.dist-info/METADATA")


def test_a_checkout_names_its_version_by_metadata_or_by_its_generated_file(tmp_path):
    with pytest.raises(NotACheckout, match=r"vllm/__init__\.py"):
        find(str(tmp_path))
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/__init__.py").write_text("")
    assert find(str(tmp_path)).version == "unknown"
    (tmp_path / "vllm/_version.py").write_text("__version__ = version = '0.34.0.dev1'\n")
    release = find(str(tmp_path))
    assert (release.version, release.origin, release.folder) == ("0.34.0.dev1", "checkout", tmp_path.resolve())


def test_an_installed_release_is_found_without_importing_it(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(NotACheckout, match="not installed"):
        find("installed")
    monkeypatch.undo()
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    release = find("installed")
    assert (release.folder, release.origin) == (tmp_path, "installed")


def test_what_is_no_release_is_said(cache):
    with pytest.raises(UnknownRelease, match="give a version"):
        find("latest", cache=cache)


def test_the_cache_is_where_the_user_wants_it(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.delenv("KVPROOF_CACHE", raising=False)
    assert releases.cache_folder() == Path("/x/kvproof")
    monkeypatch.setenv("KVPROOF_CACHE", "/y")
    assert releases.cache_folder() == Path("/y")
    monkeypatch.delenv("KVPROOF_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert releases.cache_folder() == Path.home() / ".cache/kvproof"


def test_the_pins_name_the_wheels_of_their_versions():
    versions = releases.pinned_versions()
    assert {"0.26.0", "0.27.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.33.0"} <= set(versions)
    for version in versions:
        for one in releases._pins()[version]:
            assert one.file.startswith(f"vllm-{version}-")
            assert len(bytes.fromhex(one.sha256)) == 32


@pytest.mark.vllm
def test_a_real_release_is_fetched_through_the_pip_of_this_machine(tmp_path):
    release = find("0.26.0", cache=tmp_path)
    assert release.trusted.endswith(", pinned")
    assert (release.folder / "vllm/v1/worker/gpu/block_table.py").is_file()
    assert sum(file.stat().st_size for file in release.folder.rglob("*") if file.is_file()) < 100_000_000
    assert [path.name for path in (tmp_path / "vllm").iterdir()] == ["0.26.0"]
