"""What each finished job came to, as a file of its own: an interrupted exploration is taken up again job by job.

A file counts only for the very same question: the same sources, configuration, bounds, laws and pin. ``identity`` says that in
one word.
"""

from __future__ import annotations

import json
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import attrs
import msgspec

from kvproof import core
from kvproof.spec import counterexample as examples
from kvproof.spec import distribution, output
from kvproof.spec.exploring import certificate as certificates
from kvproof.spec.exploring import pins as sizes
from kvproof.spec.exploring.jobs import Done, Job
from kvproof.spec.exploring.pins import Pin

FORMAT = "kvproof-explored"
VERSION = 1
OF_NO_MATTER = ("scopes", "which", "processes", "fault", "every_fault")
"""What was asked for that decides only which jobs there are, and who does them."""


def file_of(job: Job, folder: Path) -> Path:
    """Return the file of a job's result: another one where the same scope was asked for less, or for more."""
    asked = job.asked
    parts = ["fault" if job.fault else "random" if asked.runs else "scope", job.name]
    if asked.depth is not None:
        parts.append(f"depth-{asked.depth}")
    if asked.full:
        parts.append("full")
    if asked.laws:
        parts.append(f"laws-{blake2b(' '.join(asked.laws).encode(), digest_size=4).hexdigest()}")
    return folder / f"{'-'.join(parts)}.json"


def write(done: Done, folder: Path, pin: Pin | None) -> Path:
    """Write what a job came to. Raises OutputError; the file is whole or absent."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "kvproof": distribution.version(),
        "identity": identity(done.job, pin),
        "certificate": certificates.as_dict(done.certificate),
        "counterexample": None if done.example is None else json.loads(examples.dumps(done.example)),
        "seconds": round(done.seconds, 1),
    }
    file = file_of(done.job, folder)
    output.write_atomically(file, json.dumps(document, indent=1, sort_keys=True) + "\n")
    return file


def read(job: Job, folder: Path, pin: Pin | None) -> Done | str:
    """Return what a job came to before, or why it has to be done again."""
    file = file_of(job, folder)
    try:
        document = json.loads(file.read_bytes())
        if (document["format"], document["version"]) != (FORMAT, VERSION):
            return f"{file}: has another format"
        if document["identity"] != identity(job, pin):
            return f"{file}: is of another kvproof, or of other bounds, laws or pins"
        found = document["counterexample"]
        example = None if found is None else examples.loads(json.dumps(found), str(file))
        certificate = certificates.from_dict(document["certificate"])
        if (certificate.scope, certificate.fault) != (job.scope.name, job.fault):
            return f"{file}: is of another scope or fault"
        if certificate.end == "violation" and example is None:
            return f"{file}: contradicts itself: its search ended with a violation, and there is no counterexample"
        return Done(job, certificate, example, float(document["seconds"]), resumed=True)
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, KeyError, TypeError, RecursionError, OverflowError, examples.CounterexampleError) as error:
        return f"{file}: is no result of an exploration ({error})"


def identity(job: Job, pin: Pin | None) -> str:
    """Return a digest of everything that decides what a job comes to, and of what it is compared with."""
    config = job.scope.config()
    asked = {
        field.name: getattr(job.asked, field.name) for field in attrs.fields(type(job.asked)) if field.name not in OF_NO_MATTER
    }
    question: dict[str, Any] = {
        "sources": sources(),
        "scope": job.scope.name,
        "fault": job.fault,
        "asked": asked,
        "profile": config.profile,
        "settings": examples.settings_of(config),
        "bounds": certificates.bounds_as_dict(job.bounds),
        "laws": job.law_ids,
        "pin": pin,
    }
    text = json.dumps(msgspec.to_builtins(question), sort_keys=True)
    return blake2b(text.encode(), digest_size=16).hexdigest()


@cache
def sources() -> str:
    """Return a digest of the model, the laws, the faults and the engines: every Python file of ``core`` and ``spec``."""
    digest = blake2b(distribution.version().encode(), digest_size=16)
    for folder in (Path(str(core.__file__)).parent, Path(__file__).resolve().parents[1]):
        for file in sorted(folder.rglob("*.py")):
            digest.update(file.relative_to(folder).as_posix().encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


def pin_of(job: Job) -> Pin | None:
    """Return the pin that a job's graph may be compared with, None for faults and random runs."""
    return None if job.fault or job.asked.runs else sizes.every().get(job.scope.name)
