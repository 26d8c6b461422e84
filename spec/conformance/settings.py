"""Which declared setting explains what an implementation shows: profile fields and policies, tried one at a time.

A setting explains a difference if, from the same world, the prediction under it is what was shown. It explains a violation if
the model under it breaks the same law by the same actions. Two policies are no fields of a configuration: the order in which
free blocks are evicted, and the numbers of blocks; the shadow follows both, so only what is left of them needs an explanation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Literal, get_args, get_type_hints

from attrs import define, evolve, field, frozen

from kvproof.core import config as configs
from kvproof.core.actions import Action
from kvproof.core.config import Config, Profile
from kvproof.core.errors import ConfigError
from kvproof.core.offload import settings as offloading
from kvproof.core.profiles import profile_named
from kvproof.spec import near
from kvproof.spec.engines import players
from kvproof.spec.exits import UserError
from kvproof.spec.judge import Judge, Violation
from kvproof.spec.laws.base import Law

PROFILE_VALUES: dict[str, tuple[str, ...]] = {
    name: get_args(kind) for name, kind in get_type_hints(Profile).items() if name != "name"
}
"""Every profile field with its values (3.1)."""
OFFLOAD = ("flush", "store_submission", "hold_loads", "resumed")
"""Policies of the worker of a host tier, fields of ``Offload``."""
FLAGS = ("defer_block_free", "shared_prefix_checkpoint", "async_outputs")
"""Policies that are on or off, fields of a configuration."""
EVICTION = "eviction_order"
NUMBERING = "numbering"
FREE = (EVICTION, NUMBERING)
"""Policies that no configuration has; their one value is ``own``."""
OWN = "own"
QUEUES = ("device free queue", "host free queue")
"""Differences of the order in which blocks are taken."""
RETENTION = "retention"

Value = str | int | bool | None
Kind = Literal["profile", "offload", "config", "free"]


@frozen(slots=True)
class Setting:
    """One field of a profile, of the host tier or of a configuration, with a value; or a policy of the implementation's own."""

    kind: Kind
    name: str
    value: Value

    @property
    def text(self) -> str:
        """Return ``field=value``, as adapters declare it."""
        value = self.value if isinstance(self.value, str) else str(self.value).lower()
        return f"{self.name}={value}"

    def of(self, config: Config) -> Value:
        """Return the value that a configuration has, ``own`` for a policy that none has."""
        if self.kind == "free":
            return OWN
        if self.kind == "offload" and config.offload is None:
            return None
        holder: object = {"profile": config.profile, "offload": config.offload, "config": config}[self.kind]
        value: Value = getattr(holder, self.name)
        return value

    def applied(self, config: Config) -> Config | None:
        """Return the configuration with this setting and everything else as it is; None if there is no such configuration."""
        return _applied(self, config)


@lru_cache(maxsize=4096)  # each difference of a walk is tried with the same settings of the same configuration
def _applied(setting: Setting, config: Config) -> Config | None:
    if setting.kind == "free" or (setting.kind == "offload" and config.offload is None):
        return config
    change: dict[str, Any] = {setting.name: setting.value}
    try:
        if setting.kind == "profile":
            return configs.reconfigure(config, profile=evolve(config.profile, **change))
        if config.offload is not None and setting.kind == "offload":
            return configs.reconfigure(config, offload=evolve(config.offload, **change))
        return configs.reconfigure(config, **change)
    except ConfigError:
        return None


def candidates(config: Config) -> tuple[Setting, ...]:
    """Return every setting that a configuration does not have: profile fields first, then policies."""
    found = [setting for setting in _every() if config.offload is not None or setting.kind != "offload"]
    found += [Setting("config", RETENTION, tokens) for tokens in (0, config.scheduler_block_size)]
    return tuple(setting for setting in found if setting.of(config) != setting.value)


def _value(value: object) -> Value:
    assert value is None or isinstance(value, str | int)
    return value


# --- what is declared ---------------------------------------------------------------------------------------------


def parsed(text: str) -> Setting:
    """Return the setting that ``field=value`` names. Raises UserError for an unknown field or value."""
    name, sign, value = (part.strip() for part in text.partition("="))
    name = name.removeprefix("offload.")
    if not sign:
        raise UserError(f"policy {text!r}: write field=value, for example removed_event=each_copy")
    if name == RETENTION and value.isdecimal():
        return Setting("config", name, int(value))
    known = {(setting.name, setting.text.partition("=")[2]): setting for setting in _every()}
    if (name, value) in known:
        return known[name, value]
    values = [of for named, of in known if named == name]
    if not values:
        raise UserError(near.unknown("policy", name, list(dict.fromkeys(named for named, _ in known))))
    raise UserError(f"policy {name}: no value {value!r}; it is {' or '.join(values)}")


def _every() -> list[Setting]:
    """Return every setting with every value, the numbers of retention left out."""
    found = [Setting("profile", name, value) for name, values in PROFILE_VALUES.items() for value in values]
    found += [Setting("offload", name, _value(value)) for name in OFFLOAD for value in offloading.CHOICES[name]]
    found += [Setting("config", name, value) for name in FLAGS for value in (False, True)]
    found.append(Setting("config", RETENTION, None))
    return found + [Setting("free", name, OWN) for name in FREE]


def declared_by(adapter: object, policies: Iterable[str] = ()) -> tuple[Setting, ...]:
    """Return what is declared: the adapter's ``profile`` and ``policies`` if it has them, then these policies.

    Raises UserError for what cannot be read.
    """
    profile = getattr(adapter, "profile", None)
    if isinstance(profile, str):
        try:
            profile = profile_named(profile)
        except ConfigError as error:
            raise UserError(str(error)) from error
    if profile is not None and not isinstance(profile, Profile):
        raise UserError(f"the adapter's profile is {profile!r}: a Profile or the name of one is needed")
    found: list[Setting] = []
    if profile is not None:
        found = [Setting("profile", name, getattr(profile, name)) for name in PROFILE_VALUES]
    texts = getattr(adapter, "policies", ())
    if isinstance(texts, str):
        raise UserError(f"the adapter's policies are {texts!r}: a set of texts is needed, such as {{{texts!r}}}")
    found += [parsed(text) for text in [*sorted(texts), *policies]]
    return tuple(found)


def configured(config: Config, declared: Iterable[Setting]) -> Config:
    """Return a configuration with everything that is declared. Raises ConfigError if that is no legal configuration."""
    fields: dict[str, Any] = {}
    for setting in declared:
        change: dict[str, Any] = {setting.name: setting.value}
        if setting.kind == "profile":
            fields |= change
        elif setting.kind == "offload" and config.offload is not None:
            config = configs.reconfigure(config, offload=evolve(config.offload, **change))
        elif setting.kind == "config":
            config = configs.reconfigure(config, **change)
    profile = evolve(config.profile, **fields)
    if profile == config.profile:
        return config
    return configs.reconfigure(config, profile=_named(profile))


def _named(profile: Profile) -> Profile:
    """Return a profile under the name of the known one that it is, else as a declared one."""
    for known in configs.PROFILES:
        if evolve(profile, name=known.name) == known:
            return known
    return evolve(profile, name="declared")


# --- what explains it ---------------------------------------------------------------------------------------------

Differences = Callable[[Config], frozenset[str] | None]
"""What differs from the prediction if the model runs under a configuration; None if it cannot."""


@define(slots=True)
class Explainer:
    """Finds the settings that explain differences; remembers those of each kind of difference, since they tend to return.

    After ``patience`` differences of one kind that nothing explained, only settings that explained one before are tried.
    """

    patience: int = 8
    _known: dict[tuple[str, str], list[tuple[Setting, ...]]] = field(factory=dict, init=False)
    _failed: dict[tuple[str, str], int] = field(factory=dict, init=False)

    def explain(self, action: str, what: str, config: Config, differing: Differences) -> tuple[Setting, ...]:
        """Return the settings under which ``what`` does not differ at this action, nor anything that did not differ before."""
        kind = (action, what)
        now = differing(config) or frozenset()
        for known in self._known.setdefault(kind, []):
            if all(explains(setting, what, now, config, differing) for setting in known):
                return known
        if self._failed.get(kind, 0) >= self.patience:
            return ()
        found = tuple(setting for setting in candidates(config) if explains(setting, what, now, config, differing))
        if found:
            self._known[kind].append(found)
        else:
            self._failed[kind] = self._failed.get(kind, 0) + 1
        return found


def explains(setting: Setting, what: str, now: frozenset[str], config: Config, differing: Differences) -> bool:
    """Tell whether under a setting ``what`` is as predicted, and nothing differs that does not differ ``now``."""
    other = setting.applied(config)
    if other is None or other == config:
        return False
    there = differing(other)
    return there is not None and what not in there and there <= now


def reordered(what: str, predicted: object, observed: object) -> bool:
    """Tell whether a difference is one of the order of free blocks alone: eviction order is policy."""
    if what not in QUEUES or not isinstance(predicted, tuple) or not isinstance(observed, tuple):
        return False
    return sorted(predicted) == sorted(observed)


def bending(law: Law, config: Config, actions: Sequence[Action], violation: Violation) -> tuple[Setting, ...]:
    """Return the free policy that permits a violation, and the profile fields under which the model breaks the same law by the
    same action of these.

    Only fields that bend the law are tried: of another one a violation would be no explanation.
    """
    permitted = violation.evidence.permitted_by
    found = [Setting("free", permitted, OWN)] if permitted else []
    for name, value in law.bent_by:
        setting = Setting("profile", name, value)
        other = setting.applied(config)
        if other is None or other == config or getattr(config.profile, name) == value:
            continue
        if any(shown.position == violation.position for shown in broken(law, other, actions)):
            found.append(setting)
    return tuple(found)


def broken(law: Law, config: Config, actions: Sequence[Action]) -> list[Violation]:
    """Return how the model breaks a law by these actions under a configuration."""
    judge, player = Judge((law,)), players.model(config)
    found = judge.configuration(config)
    for position, action in enumerate(actions):
        found += judge.moment(player.act(action), position)
    return found + judge.run(config, actions)
