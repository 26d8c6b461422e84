"""Known deviations of a release, declared: which law, under which condition, where it is written up, and what shows it.

The witness is a case of the scheduler, or appends to a worker's rows.

A declared violation does not fail. An entry that its own witness does not show any more, or whose date has passed, does.
"""

from __future__ import annotations

import ast
import datetime
from collections.abc import Collection, Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from kvproof.core.actions import AppendRows
from kvproof.core.errors import ConfigError
from kvproof.core.profiles import PROFILES
from kvproof.spec.exits import UserError
from kvproof.spec.laws.base import Law
from kvproof.spec.traces.format import Config
from kvproof.spec.vllm import configurations, scope_parts, scopes, scripts, subjects
from kvproof.spec.vllm.configurations import Arguments
from kvproof.spec.vllm.runs import Breach, Case
from kvproof.spec.vllm.scope_parts import Scope

FORMAT = "kvproof-conform-baseline"
FOLDER = "data/baselines"

Text = Annotated[str, Meta(min_length=1, max_length=2000)]


class BaselineError(UserError):
    """A baseline file cannot be used; the message names the file and the entry."""


class _Strict(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all types here."""


class Condition(_Strict, frozen=True):
    """When a violation is declared. What is given must all be true.

    ``profile``: a field of the engine's profile and its value, ``name=value``, that bends the law (docs/laws.md); the model
    under that profile must break the law in the same run, too. ``config``: fact of the configuration (`facts`) -> allowed
    values. ``message``: a part of the evidence's sentence or of one of its values. ``raised_by``: the function that raised, by
    its file in the release, such as ``vllm/v1/request.py in append``. ``prompt_ends``: the evidence's prompt is whole hash
    blocks.
    """

    profile: str | None = None
    config: dict[str, list[Any]] | None = None
    message: str | None = None
    raised_by: str | None = None
    prompt_ends: bool | None = None


Count = Annotated[int, Meta(ge=0, le=1 << 31)]


class Witness(_Strict, frozen=True):
    """What shows the violation under a named scope or a configuration: a ``script`` of the scheduler, or ``appends`` to rows.

    An append is ``[row, ids per group]``: manager blocks that go to the end of a worker's row.
    """

    script: list[Any] | None = None
    appends: Annotated[list[tuple[Count, list[list[Count]]]], Meta(min_length=1)] | None = None
    scope: str = ""
    config: Config | None = None

    def case(self, name: str) -> Case:
        """Return the case to run; ``name`` is what messages call it. Raises UserError."""
        scope = scopes.by_name(self.scope) if self.config is None else Scope(self.scope or name, self.config)
        return Case(scope, scripts.checked(self.script or []), name)

    def rows(self, name: str) -> tuple[Arguments, tuple[AppendRows, ...]]:
        """Return the configuration and the appends to perform, none of them outside of it. Raises UserError."""
        config = self.case(name).scope.config
        try:
            arguments = configurations.arguments_of(name, scope_parts.model(config))
        except ConfigError as error:
            raise UserError(f"the model cannot take the configuration of the witness: {error}") from error
        actions = tuple(AppendRows(row, tuple(map(tuple, ids))) for row, ids in self.appends or ())
        for at, action in enumerate(actions):
            if len(action.blocks) != len(config.groups):
                raise UserError(
                    f"append {at} has ids of {len(action.blocks)} groups, the configuration has {len(config.groups)}"
                )
            if action.row >= config.max_running:
                raise UserError(f"append {at} goes to row {action.row}; there are {config.max_running}")
            if any(block >= config.num_device_blocks for ids in action.blocks for block in ids):
                raise UserError(f"append {at} has an id that is no block; there are {config.num_device_blocks}")
        return arguments, actions


class Entry(_Strict, frozen=True):
    """One declared deviation. ``versions`` are the releases that have it, ``expires`` the day from which it fails."""

    law: str
    condition: Condition
    source: Text
    versions: Annotated[list[str], Meta(min_length=1)]
    expires: datetime.date
    witness: Witness
    note: str = ""

    @property
    def name(self) -> str:
        """Return how messages call the entry."""
        return f"{self.law} ({self.source})"

    def excuses(self, config: Config, breach: Breach, laws: Mapping[str, Law]) -> bool:
        """Tell whether the entry declares this violation under this configuration."""
        condition = self.condition
        if breach.law != self.law:
            return False
        if condition.message is not None and not any(condition.message in text for text in _texts(breach)):
            return False
        if condition.raised_by is not None and condition.raised_by != dict(breach.values).get("raised_by"):
            return False
        if condition.profile is not None and not (breach.bent and bends(condition.profile, laws[self.law])):
            return False
        if condition.prompt_ends is not None and condition.prompt_ends != ends_on_boundary(config, breach):
            return False
        known = facts(config)
        return all(known[name] in allowed for name, allowed in (condition.config or {}).items())


class Baseline(_Strict, frozen=True):
    """A baseline file."""

    format: str
    version: int
    entries: list[Entry]


def bends(setting: str, law: Law) -> bool:
    """Tell whether a profile setting ``name=value`` is among those that bend a law."""
    name, _, value = setting.partition("=")
    return (name, value) in law.bent_by


def _texts(breach: Breach) -> list[str]:
    return [breach.message, *(value for _, value in breach.values)]


def ends_on_boundary(config: Config, breach: Breach) -> bool | None:
    """Tell whether the prompt of a violation is whole hash blocks; None if its evidence has no prompt."""
    text = dict(breach.values).get("prompt")
    try:
        prompt = None if text is None else ast.literal_eval(text)
    except (SyntaxError, ValueError):  # cut off, or no list of tokens
        return None
    return len(prompt) % config.hash_block_size == 0 if isinstance(prompt, list | tuple) else None


def facts(config: Config) -> dict[str, Any]:
    """Return what a condition may ask of a configuration."""
    kinds = {group.kind for group in config.groups}
    scheduler, host, retention = config.scheduler, config.host, config.retention_interval
    return {
        "recurrent": "mamba" in kinds,
        "window": "sliding_window" in kinds,
        "chunked": "chunked_local" in kinds,
        "drafter_group": any(group.is_eagle_group for group in config.groups),
        "one_size": len(set(config.group_block_sizes)) == 1,
        "ranks": config.dcp_world_size,
        "fine_grained": config.fine_grained_hits,
        "retention": "dense" if retention is None else "interval" if retention else "sparse",
        "host": "none" if host is None else host.mode,
        "events": host is not None and host.events,
        "workers": 0 if host is None else host.workers,
        "eagle": config.use_eagle,
        "drafts": config.num_draft_tokens,
        "limit_cuts_padding": scheduler is not None and 0 < scheduler.long_prefill_token_threshold <= config.num_draft_tokens,
        "policy": "" if scheduler is None else scheduler.policy,
        "runner": "" if scheduler is None else scheduler.runner,
        "batches": 1 if scheduler is None else scheduler.concurrent_batches,
        "connectors": len(config.connectors or ()),
    }


def read(path: Path, laws: Iterable[Law]) -> list[Entry]:
    """Read and check a baseline file. Raises BaselineError with the place."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BaselineError(f"{path}: cannot be read: {error.strerror}; name a readable file") from error
    return parsed(data, str(path), laws)


def parsed(data: bytes, name: str, laws: Iterable[Law]) -> list[Entry]:
    """Return the entries of a baseline file from memory; every law, setting and fact must be known. Raises BaselineError."""
    try:
        found = msgspec.json.decode(data, type=Baseline)
    except msgspec.MsgspecError as error:
        raise BaselineError(f"{name}: {error}; see docs/conform.md for the format") from error
    if (found.format, found.version) != (FORMAT, 1):
        raise BaselineError(f"{name}: is {found.format!r} version {found.version}, need {FORMAT!r} version 1")
    known = {law.id: law for law in laws}
    for at, entry in enumerate(found.entries):
        for problem in _problems(entry, known):
            raise BaselineError(f"{name}: entry {at} ({entry.law}): {problem}")
    return list(found.entries)


def _problems(entry: Entry, laws: Mapping[str, Law]) -> list[str]:
    found = []
    condition = entry.condition
    if entry.law not in laws:
        return [f"no law is called {entry.law}; `kvproof laws` lists them"]
    if condition == Condition():
        found.append(
            "a condition is needed: a profile setting, facts of the configuration, the prompt's end, a part of the message, "
            "or what raised"
        )
    if condition.profile is not None and not bends(condition.profile, laws[entry.law]):
        found.append(f"{condition.profile} does not bend {entry.law}; docs/laws.md names what does")
    name = (condition.profile or "").partition("=")[0]
    if condition.profile is not None and not any(hasattr(profile, name) for profile in PROFILES):
        found.append(f"a profile has no field {name}")
    example = scopes.ALL[0].config
    unknown = sorted(set(condition.config or {}) - set(facts(example)))
    if unknown:
        found.append(f"nothing is called {', '.join(unknown)}; known are {', '.join(facts(example))}")
    if (entry.witness.config is None) == (not entry.witness.scope):
        found.append("a witness has a scope or a configuration")
    if (entry.witness.script is None) == (entry.witness.appends is None):
        found.append("a witness has a script or appends")
    if entry.witness.appends is not None and entry.law not in subjects.ROW_LAWS:
        found.append(f"{entry.law} is not judged on rows; a witness with appends is for {', '.join(subjects.ROW_LAWS)}")
    if entry.witness.appends is None and entry.law in subjects.ROW_LAWS:
        found.append(f"no run shows a worker's rows; a witness of {entry.law} has appends")
    try:
        entry.witness.case(entry.name)
        if entry.witness.appends is not None:
            entry.witness.rows(entry.name)
    except UserError as error:
        found.append(str(error))
    return found


def shipped(laws: Iterable[Law]) -> list[Entry]:
    """Return the entries of all baseline files of this package."""
    folder = resources.files("kvproof.spec").joinpath(*FOLDER.split("/"))
    every = list(laws)
    found: list[Entry] = []
    if folder.is_dir():
        for file in sorted(folder.iterdir(), key=lambda one: one.name):
            if file.name.endswith(".json"):
                found += parsed(file.read_bytes(), file.name, every)
    return found


def of_release(entries: Iterable[Entry], version: str) -> list[Entry]:
    """Return the entries that name a release."""
    return [entry for entry in entries if version in entry.versions]


def expired(entries: Iterable[Entry], today: datetime.date) -> list[Entry]:
    """Return the entries whose day has come."""
    return [entry for entry in entries if entry.expires <= today]


def excused(entries: Collection[Entry], config: Config, breach: Breach, laws: Mapping[str, Law]) -> Entry | None:
    """Return the entry that declares a violation under a configuration."""
    return next((entry for entry in entries if entry.excuses(config, breach, laws)), None)
