"""Empty stand-ins for packages that a release imports but that nothing on the scheduler's side ever calls.

Only names of ``HEAVY`` are ever replaced, and only where the real package is absent: optional packages that a release looks for
by trying to import them stay absent, so that the release takes the same branches as without this module.
"""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import importlib.util
import os
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

HEAVY = (
    "transformers",
    "tokenizers",
    "huggingface_hub",
    "safetensors",
    "openai",
    "openai_harmony",
    "anthropic",
    "mcp",
    "xgrammar",
    "llguidance",
    "outlines_core",
    "lark",
    "lmformatenforcer",
    "diskcache",
    "mistral_common",
    "gguf",
    "compressed_tensors",
    "depyf",
    "aiohttp",
    "fastapi",
    "starlette",
    "uvicorn",
    "uvloop",
    "watchfiles",
    "prometheus_client",
    "prometheus_fastapi_instrumentator",
    "requests",
    "tqdm",
    "PIL",
    "cv2",
    "blake3",
    "cloudpickle",
    "cpuinfo",
    "pybase64",
    "setproctitle",
    "sentencepiece",
    "tiktoken",
    "partial_json_parser",
    "jinja2",
    "google",
    "scipy",
    "soundfile",
    "ijson",
    "model_hosting_container_standards",
    "opentelemetry",
    "grpc",
    "zstandard",
    "python_json_logger",
    "pythonjsonlogger",
)


class _Kind(type):
    """Class of the stand-in classes: any attribute and any subscript of one is one again."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any) -> Any:
        """Make the class, whatever keywords its statement has."""
        return super().__new__(cls, name, bases, namespace)

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(name, bases, namespace)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Kind(name, (StandIn,), {"__module__": cls.__module__})

    def __getitem__(cls, key: object) -> Any:
        return cls

    def __or__(cls, other: Any) -> Any:
        return Any

    def __ror__(cls, other: Any) -> Any:
        return Any


class StandIn(metaclass=_Kind):
    """Stands for any class, function or decorator: built with any arguments, it returns the function that it decorates."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Return the one callable argument (a decorator's use) or an empty object."""
        if cls.__module__ in _SERVED and len(args) == 1 and not kwargs and callable(args[0]):
            return args[0]
        return super().__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        return

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> dict[str, str]:
        """Let pydantic accept anything where a model of a release has a field of this type."""
        return {"type": "any"}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the one callable argument (a decorator's use) or another empty object."""
        return args[0] if len(args) == 1 and not kwargs and callable(args[0]) else StandIn()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn()


_SERVED: set[str] = set()


class _Module(types.ModuleType):
    """A module in which every public name is a stand-in class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Kind(name, (StandIn,), {"__module__": self.__name__})
        setattr(self, name, made)
        return made


class _Distribution(importlib.metadata.Distribution):
    """Metadata of a replaced package: some releases ask for a version while they are imported."""

    def __init__(self, name: str) -> None:
        self._name = name

    def read_text(self, filename: str) -> str | None:
        """Return the metadata; every version requirement in a release is a lower bound."""
        return f"Metadata-Version: 2.1\nName: {self._name}\nVersion: 999.0.0\n" if filename == "METADATA" else None

    def locate_file(self, path: str | os.PathLike[str]) -> Any:
        """Return the path itself: there are no files."""
        return path


class _Finder:
    """Last entry of ``sys.meta_path``: serves the heavy packages that nobody else finds."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a spec for a heavy package or a module in it, None for everything else."""
        if fullname.partition(".")[0] not in self.names:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)  # type: ignore[arg-type]

    def find_distributions(self, context: Any = None) -> Iterator[importlib.metadata.Distribution]:
        """Yield the metadata of one replaced package; a search for all packages gets none."""
        name = getattr(context, "name", None)
        if name is not None and name.replace("-", "_") in self.names:
            yield _Distribution(name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Return an empty module for the spec."""
        _SERVED.add(spec.name)
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to execute."""


def install() -> list[str]:
    """Install the stand-ins, before the first import of a release. Returns the packages that are replaced."""
    missing = [name for name in HEAVY if importlib.util.find_spec(name) is None]
    sys.meta_path.append(_Finder(frozenset(missing)))
    return missing


def used() -> list[str]:
    """Return the stand-ins that were imported so far, in order of name."""
    return sorted(_SERVED)
