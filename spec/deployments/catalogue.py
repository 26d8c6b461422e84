"""The deployments that ship inside the package, one TOML file each."""

from __future__ import annotations

import functools
from importlib import resources
from importlib.resources.abc import Traversable

from kvproof.spec import near
from kvproof.spec.deployments import read
from kvproof.spec.deployments.schema import Deployment
from kvproof.spec.exits import UserError

SUFFIX = ".toml"


class UnknownDeployment(UserError):
    """No shipped deployment has this name."""


def names() -> tuple[str, ...]:
    """Names of all shipped deployments, sorted."""
    return tuple(sorted(file.name.removesuffix(SUFFIX) for file in _folder().iterdir() if file.name.endswith(SUFFIX)))


@functools.cache
def find(name: str) -> Deployment:
    """Return the shipped deployment of this name. Raises UnknownDeployment."""
    if name not in names():
        close = near.nearest(name, names())
        asked = f" (did you mean {' or '.join(close)}?)" if close else ""
        raise UnknownDeployment(f"no shipped deployment is called {name!r}{asked}; `kvproof explain --list` names them all")
    return read.read_bytes(source(name), f"{name}{SUFFIX}")


def source(name: str) -> bytes:
    """Return the bytes of a shipped file; the name must be one of :func:`names`."""
    return (_folder() / f"{name}{SUFFIX}").read_bytes()


def everything() -> tuple[Deployment, ...]:
    """Return all shipped deployments, sorted by name."""
    return tuple(find(name) for name in names())


def _folder() -> Traversable:
    return resources.files("kvproof.spec") / "data" / "deployments"
