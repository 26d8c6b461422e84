"""The code of one vLLM release: an installed one, a checkout, or a wheel fetched by version, checked and unpacked into a cache.

Only the Python files of the package and its metadata are kept; nothing is installed and nothing of it is imported here. The
wheel comes through pip with the user's own configuration: this module knows a package name, never an index.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from importlib import metadata, resources
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec
from attrs import frozen

from kvproof.spec.exits import UserError

PACKAGE = "vllm"
PINS = "vllm-releases.json"
RECORD = "release.json"
INSTALLED = "installed"
VERSION = re.compile(r"\d+(\.\d+)+[0-9A-Za-z.+-]*")
STALE_SECONDS = 24 * 3600
"""A folder that a killed download left behind is removed after this time."""

DOWNLOAD_SECONDS = 3600
# The wheels of all platforms hold the same Python files, and only those are used: every machine takes the pinned one.
PLATFORM = ("--python-version", "3.11", "--implementation", "cp", "--abi", "abi3", "--platform", "manylinux_2_28_x86_64")

Origin = Literal["installed", "checkout", "download"]
Say = Callable[[str], None]


class ReleaseError(UserError):
    """The code of a release cannot be had; the message says what to do."""


class UnknownRelease(ReleaseError):
    """No package index of this pip offers the version."""


class NoNetwork(ReleaseError):
    """The package index cannot be reached."""


class WrongHash(ReleaseError):
    """A wheel, or an unpacked release, is not what was pinned or first seen."""


class NoSpace(ReleaseError):
    """The cache folder has no room left, or cannot be written."""


class NotACheckout(ReleaseError):
    """A path holds no vLLM."""


@frozen(slots=True)
class Release:
    """Code of vLLM that can be run: ``folder`` holds the package ``vllm`` and goes on the path of a child process.

    ``trusted`` says in one sentence how the code is known to be that of ``version``.
    """

    version: str
    folder: Path
    origin: Origin
    trusted: str


class _Pin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    file: str
    sha256: str


class _Pins(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    releases: dict[str, list[_Pin]]


class _Unpacked(msgspec.Struct, frozen=True):
    """What the cache says about one unpacked wheel: ``tree`` is the digest of the unpacked files."""

    version: str
    file: str
    sha256: str
    pinned: bool
    tree: str


def find(name: str, *, cache: Path | None = None, say: Say = lambda _: None) -> Release:
    """Return the code of a release: ``installed``, the path of a checkout, or a version, fetched unless the cache has it.

    ``say`` is told in a sentence what takes time or needs to be known. Raises ReleaseError.
    """
    if name == INSTALLED:
        return installed()
    if os.sep in name or name.startswith((".", "~")) or Path(name).is_dir():
        return checkout(Path(name).expanduser())
    if not VERSION.fullmatch(name):
        raise UnknownRelease(
            f"{name!r} is no release of vLLM: give a version such as 0.33.0, the path of a checkout, or {INSTALLED!r}"
        )
    return fetched(name, cache_folder() if cache is None else cache, say)


def cache_folder() -> Path:
    """Return where unpacked releases are kept: KVPROOF_CACHE, or ``kvproof`` below XDG_CACHE_HOME or ~/.cache."""
    own, shared = os.environ.get("KVPROOF_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if own:
        return Path(own).expanduser()
    return (Path(shared) if shared else Path.home() / ".cache") / "kvproof"


def pinned_versions() -> tuple[str, ...]:
    """Return the versions whose wheels are pinned by hash, in the order of the data file."""
    return tuple(_pins())


@functools.cache
def _pins() -> dict[str, list[_Pin]]:
    data = (resources.files("kvproof.spec") / "data" / PINS).read_bytes()
    return msgspec.json.decode(data, type=_Pins).releases


# --- code that is there already -----------------------------------------------------------------------------------


def installed() -> Release:
    """Return the vLLM of this Python environment, without importing it. Raises NotACheckout."""
    found = importlib.util.find_spec(PACKAGE)
    places = list(found.submodule_search_locations or ()) if found is not None else []
    if not places:
        raise NotACheckout("vLLM is not installed for this Python: name a version such as 0.33.0 or the path of a checkout")
    try:
        version = metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        version = _written_version(Path(places[0]).parent)
    return Release(version, Path(places[0]).parent, "installed", f"as it is installed in {Path(places[0]).parent}")


def checkout(folder: Path) -> Release:
    """Return the vLLM in a folder that contains ``vllm/__init__.py``. Raises NotACheckout."""
    folder = folder.resolve()
    if not (folder / PACKAGE / "__init__.py").is_file():
        raise NotACheckout(f"{folder} holds no vllm/__init__.py: give the folder that contains the package vllm")
    return Release(_written_version(folder), folder, "checkout", f"as it lies in {folder}")


def _written_version(folder: Path) -> str:
    """Return the version that a folder names: by metadata beside the package, or by its generated version file."""
    for described in sorted(folder.glob(f"{PACKAGE}-*.dist-info/METADATA")):
        match = re.search(r"^Version: (\S+)$", described.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
        if match:
            return match.group(1)
    generated = folder / PACKAGE / "_version.py"
    if generated.is_file():
        text = generated.read_text(encoding="utf-8", errors="replace")
        match = re.search(r"^(?:__version__ = )?version = ['\"]([^'\"]+)['\"]", text, re.MULTILINE)
        if match:
            return match.group(1)
    return "unknown"


# --- code that is fetched -----------------------------------------------------------------------------------------


def fetched(version: str, cache: Path, say: Say = lambda _: None) -> Release:
    """Return a release from the cache, fetching it first if it is not there. Raises ReleaseError."""
    home = cache / PACKAGE
    target = home / version
    if not (target / RECORD).is_file():
        say(f"fetching the wheel of vLLM {version} through pip (about 300 MB; some 50 MB of it are kept in {target})")
        with _room_needed(home):
            _fetch(version, home, target)
    record = _read_record(target)
    if _tree_digest(target) != record.tree:
        raise WrongHash(f"the unpacked vLLM {version} in {target} is not as it was unpacked: remove that folder and try again")
    how = f"sha256 {record.sha256[:12]} of {record.file}"
    if record.pinned:
        return Release(version, target, "download", f"{how}, pinned")
    say(f"vLLM {version} is not pinned: {record.file} was trusted on first use, {record.sha256}")
    return Release(version, target, "download", f"{how}, trusted on first use")


@contextlib.contextmanager
def _room_needed(home: Path) -> Iterator[None]:
    """Turn failures of the file system below ``home`` into NoSpace."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
            why = os.strerror(error.errno).lower()
            raise NoSpace(
                f"{home} cannot be written ({why}): free 500 MB there or set KVPROOF_CACHE to another folder"
            ) from error
        raise


def _fetch(version: str, home: Path, target: Path) -> None:
    """Download, check and unpack a wheel beside its place, then move it there; of two processes one comes first."""
    _sweep(home)
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=home) as folder:
        work = Path(folder)
        wheel = _download(version, work)
        digest = _file_digest(wheel)
        pinned = _check_hash(version, wheel.name, digest, home)
        fresh = work / "unpacked"
        _unpack(wheel, fresh)
        record = _Unpacked(version, wheel.name, digest, pinned, _tree_digest(fresh))
        wheel.unlink()
        (fresh / RECORD).write_bytes(msgspec.json.encode(record))
        if target.is_dir() and not (target / RECORD).is_file():
            shutil.rmtree(target)  # no folder of ours is without its record
        try:
            fresh.rename(target)
        except OSError:
            if not (target / RECORD).is_file():
                raise


def _sweep(home: Path) -> None:
    """Remove what killed downloads left behind."""
    for left in home.glob(".fetching-*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(left, ignore_errors=True)


def _download(version: str, folder: Path) -> Path:
    """Let pip download the wheel of a version into a folder. Raises UnknownRelease, NoNetwork, NoSpace or ReleaseError."""
    said = _pip(version, folder, PLATFORM)
    if said is not None and _is_unknown(said):
        said = _pip(version, folder, ())  # an index may have a wheel of this platform alone
    wheels = sorted(folder.glob("*.whl"))
    if said is None and wheels:
        return wheels[0]
    raise _explained(version, said or "pip downloaded no wheel")


def _pip(version: str, folder: Path, flags: tuple[str, ...]) -> str | None:
    """Run ``pip download``; return what it said if it failed. The version is compared literally, local part included."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar", "off", "--dest", str(folder), *flags, f"{PACKAGE}==={version}"]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=DOWNLOAD_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return f"timed out after {DOWNLOAD_SECONDS} s"
    return None if done.returncode == 0 else done.stdout + done.stderr


UNREACHABLE = re.compile(
    r"NewConnectionError|Failed to establish|Max retries|ConnectionResetError|ProxyError|SSLError|ReadTimeout|ConnectTimeout"
    r"|name resolution|Name or service not known|timed out|HTTP error|50[0-9] Server Error|Retrying \(",
    re.IGNORECASE,
)


OFFERED = re.compile(r"\(from versions: ([^)]*)\)")
SHOWN_VERSIONS = 12


def _newest(offered: re.Match[str]) -> str:
    """Return pip's list of versions, of a long one the last, which are the newest."""
    versions = offered.group(1).split(", ")
    older = len(versions) - SHOWN_VERSIONS
    if older <= 0:
        return offered.group(0)
    return f"(from versions: {older} older ones, {', '.join(versions[-SHOWN_VERSIONS:])})"


def _cut(text: str, most: int = 900) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


def _is_unknown(said: str) -> bool:
    return "No matching distribution" in said and not UNREACHABLE.search(said)


def _explained(version: str, said: str) -> ReleaseError:
    """Return the error that fits what pip said."""
    errors = "; ".join(line.strip() for line in said.splitlines() if line.startswith("ERROR"))
    last = _cut(OFFERED.sub(_newest, errors))
    last = last or " ".join(said.split())[-300:]
    if "No space left" in said or "Disk quota" in said:
        return NoSpace(f"no room for the wheel of vLLM {version}: free 500 MB or set KVPROOF_CACHE to another folder ({last})")
    if "No module named pip" in said:
        return ReleaseError(f"{sys.executable} has no pip: run `{sys.executable} -m ensurepip`, or give the path of a checkout")
    if UNREACHABLE.search(said) or "(from versions: none)" in said:
        return NoNetwork(
            f"vLLM {version} cannot be fetched: pip does not reach its index, or finds no vLLM there; check "
            f"`pip config list`, or give the path of a checkout ({last})"
        )
    if _is_unknown(said):
        return UnknownRelease(
            f"pip offers no vLLM {version}: name another version (see `pip index versions vllm`), or give the path "
            f"of a checkout ({last})"
        )
    return ReleaseError(f"pip failed to download vLLM {version}: {last}; give the path of a checkout instead")


def _check_hash(version: str, file: str, digest: str, home: Path) -> bool:
    """Compare with the pin of a wheel, or with what was seen first; tell whether it is pinned. Raises WrongHash."""
    for pin in _pins().get(version, ()):
        if pin.file == file:
            if pin.sha256 != digest:
                raise WrongHash(
                    f"{file} has sha256 {digest}, pinned is {pin.sha256}: it is not the published wheel; look at the "
                    "index that `pip config list` shows"
                )
            return True
    seen = home / "trusted" / f"{file}.sha256"
    seen.parent.mkdir(exist_ok=True)
    try:
        with seen.open("x", encoding="ascii") as record:
            record.write(digest + "\n")
    except FileExistsError:
        first = seen.read_text(encoding="ascii").strip()
        if first != digest:
            raise WrongHash(
                f"{file} has sha256 {digest}, at its first use it had {first}: find out why it changed, then remove {seen}"
            ) from None
    return False


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _wanted(name: str) -> bool:
    parts = PurePosixPath(name).parts
    if not parts or ".." in parts or name.startswith("/") or "\\" in name:
        return False
    described = len(parts) == 2 and parts[0].endswith(".dist-info") and parts[1] == "METADATA"
    return described or (parts[0] == PACKAGE and name.endswith(".py"))


def _unpack(wheel: Path, folder: Path) -> None:
    """Unpack the Python files and the metadata of a wheel. Raises ReleaseError if it is none, or holds no vLLM."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in sorted(archive.namelist()):
                if _wanted(name):
                    place = folder / name
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.write_bytes(archive.read(name))
    except zipfile.BadZipFile as error:
        raise ReleaseError(f"{wheel.name} is no wheel ({error}): try again") from error
    if not (folder / PACKAGE / "__init__.py").is_file():
        raise ReleaseError(f"{wheel.name} holds no package {PACKAGE}: name another version")


def _tree_digest(folder: Path) -> str:
    """Return the digest of all Python files and the metadata below a folder: names and contents."""
    whole = hashlib.sha256()
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.suffix in (".py", "") and path.is_file()]
    for name in sorted(name for name in names if _wanted(name)):
        whole.update(f"{name}\0{_file_digest(folder / name)}\n".encode())
    return whole.hexdigest()


def _read_record(target: Path) -> _Unpacked:
    try:
        return msgspec.json.decode((target / RECORD).read_bytes(), type=_Unpacked)
    except (OSError, msgspec.MsgspecError) as error:
        raise WrongHash(f"{target / RECORD} cannot be read ({error}): remove {target} and try again") from error
