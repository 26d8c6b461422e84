"""Reading a deployment file: TOML or JSON, strict, with an error that says where the problem is and what to do."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import Struct

from kvproof.spec.deployments import arithmetic, mistakes, schema
from kvproof.spec.deployments.schema import Deployment, Sourced
from kvproof.spec.exits import UserError

MAX_BYTES = 1 << 20
MAX_GROUPS = 64


class DeploymentError(UserError):
    """A deployment file that cannot be used.

    Attributes:
        file: the file as the caller named it.
        what: what is wrong, with the place in the file.
    """

    def __init__(self, file: str, what: str) -> None:
        super().__init__(f"{file}: {what}")
        self.file = file
        self.what = what


def read(path: Path | str) -> Deployment:
    """Return the deployment in a file. Raises DeploymentError."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DeploymentError(str(path), f"cannot be read: {reason}; name a TOML or JSON file (docs/deployments.md)") from error
    return read_bytes(data, str(path))


def read_bytes(data: bytes, name: str) -> Deployment:
    """Return the deployment in the bytes of a file called ``name``; JSON if the name ends so. Raises DeploymentError."""
    if len(data) > MAX_BYTES:
        raise DeploymentError(name, f"is longer than {MAX_BYTES:,} bytes: that is no deployment file")
    wrapped = _wrapped(_parse(data, name), Deployment)
    try:
        deployment = msgspec.convert(wrapped, Deployment)
    except msgspec.ValidationError as error:
        raise DeploymentError(
            name, f"{mistakes.in_words(error, wrapped)}; docs/deployments.md has the format and an example to copy"
        ) from error
    for problem in problems(deployment):
        raise DeploymentError(name, problem)
    return deployment


def _parse(data: bytes, name: str) -> Any:
    try:
        text = data.decode("utf-8")
        return json.loads(text) if name.endswith(".json") else tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise DeploymentError(name, "is not UTF-8 text: save it as UTF-8") from error
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        language = "JSON" if name.endswith(".json") else "TOML"
        raise DeploymentError(name, f"is no {language}: {error}") from error
    except RecursionError as error:
        raise DeploymentError(name, "is nested too deeply: that is no deployment file") from error


def _wrapped(raw: Any, kind: Any) -> Any:
    """Return parsed data of a type with every bare value of a sourced field written out as one without a source."""
    structs = [known for known in _types(kind) if isinstance(known, type) and issubclass(known, Struct)]
    if isinstance(raw, list):
        return [_wrapped(item, kind) for item in raw]
    if not isinstance(raw, dict):
        bare = isinstance(raw, int | float | str) and any(known in get_args(Sourced) for known in structs)
        return {"value": raw, "assumed": schema.WITHOUT_SOURCE} if bare else raw
    tagged = [known for known in structs if known.__struct_config__.tag in (None, raw.get("kind"))]
    fields = {item.encode_name: item.type for known in tagged for item in msgspec.structs.fields(known)}
    return {key: _wrapped(value, fields[key]) if key in fields else value for key, value in raw.items()}


def _types(kind: Any) -> list[Any]:
    """Return a type with all types inside it: members of unions, elements of tuples."""
    return [kind, *(inner for argument in get_args(kind) for inner in _types(argument))]


def problems(deployment: Deployment) -> list[str]:
    """Return what is wrong with the counts, the sources and the arithmetic of a deployment, in words."""
    counts = [group.count.value for group in deployment.groups]
    found = [f"groups[{index}].count is 0: leave the group out" for index, count in enumerate(counts) if not count]
    if sum(counts) > MAX_GROUPS:
        found.append(f"{sum(counts)} groups: at most {MAX_GROUPS} are read")
    used: set[str] = set()
    for path, value in schema.values(deployment):
        used.update(value.sources)
        found += [f"{path}: no source {key!r} in [sources]" for key in value.sources if key not in deployment.sources]
        if value.assumed is not None and (value.sources or value.computed is not None):
            found.append(f"{path}: it is assumed and has a source as well: keep one of them")
        if value.basis == "assumed" and value.assumed is None:
            found.append(f"{path}: say where the value comes from: from = [...], computed = ... or assumed = ...")
    for index, fact in enumerate(deployment.facts):
        used.update(fact.sources)
        found += [f"facts[{index}]: no source {key!r} in [sources]" for key in fact.sources if key not in deployment.sources]
        if bool(fact.sources) == (fact.assumed is not None):
            found.append(f"facts[{index}]: give from = [...] or assumed = ..., one of them")
    found += [f"sources.{key} is used by no number: remove it" for key in deployment.sources if key not in used]
    return found + arithmetic.differences(deployment)
