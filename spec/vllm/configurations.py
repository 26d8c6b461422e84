"""Configurations under which a release's geometry and rows are judged: the scopes, the deployments, and seeded random ones.

A configuration is kept as the arguments of ``configure``, so that it can be resolved anew and made smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import gcd
from random import Random
from typing import Any

from attrs import evolve, field, frozen

from kvproof.core import config as configs
from kvproof.core.config import VLLM_0_33_0, Config, Group
from kvproof.core.errors import ConfigError
from kvproof.spec.deployments import catalogue, model
from kvproof.spec.engines import scopes

BASES = (1, 2, 4, 8, 16, 32, 64)
ODD = (3, 6, 12, 24)
LONGEST = 4096
"""Tokens of the longest sequence of a random configuration."""

LARGEST_BLOCK = 64
"""Deployments with larger blocks are scaled down towards it: laws count tokens one by one."""


@frozen(slots=True)
class Arguments:
    """Arguments of ``configure``: the groups and the settings that differ from its defaults. ``origin`` says where from."""

    origin: str
    groups: tuple[Group, ...]
    settings: Mapping[str, Any] = field(factory=dict)

    def resolve(self, configure: Callable[..., Config] = configs.configure) -> Config:
        """Resolve the configuration under the profile of vLLM. Raises ConfigError."""
        return configure(self.groups, **{**self.settings, "profile": VLLM_0_33_0})

    @property
    def size(self) -> tuple[int, ...]:
        """What minimising makes smaller, the most important first: groups, ranks, blocks, the rest, the longest sequence."""
        named = {name: value for name, value in self.settings.items() if value != configs.DEFAULTS.get(name)}
        blocks = sum(group.block_size + (group.window or 0) + group.speculative_blocks for group in self.groups)
        ranks, length = self.settings.get("dcp_size", 1), self.settings.get("max_model_len", 1024)
        return len(self.groups), ranks, blocks, len(named), length


def everything(seed: int, count: int, *, quick: bool = False) -> Iterator[Arguments]:
    """Yield the scopes, the deployments, and ``count`` random configurations of a seed; ``quick``: the quick scopes only."""
    yield from known(quick)
    yield from generated(seed, count)


def known(quick: bool = False) -> Iterator[Arguments]:
    """Yield the configurations of the scopes and of all deployments."""
    for scope in scopes.chosen(quick):
        yield arguments_of(f"scope {scope.name}", scope.config())
    for deployment in catalogue.everything():
        if model.lacks(deployment) is None:
            whole = model.configure(deployment, 64, 256)
            yield arguments_of(f"deployment {deployment.name}", _scaled(whole))


def arguments_of(origin: str, config: Config) -> Arguments:
    """Return the arguments that give a configuration: its groups and what is not as by default."""
    settings = {name: getattr(config, name) for name in configs.INPUTS if name not in ("groups", "profile", "hash_block_size")}
    fitting = {name: value for name, value in settings.items() if value != configs.DEFAULTS.get(name)}
    alone = evolve_settings(fitting, hash_block_size=None)
    default = configs.configure(config.groups, **alone).hash_block_size
    if config.hash_block_size != default:
        fitting["hash_block_size"] = config.hash_block_size
    return Arguments(origin, config.groups, fitting)


def evolve_settings(settings: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """Return settings with some changed, those that become None left out."""
    return {name: value for name, value in {**settings, **changes}.items() if value is not None}


def _scaled(config: Config) -> Config:
    """Return a deployment with its lengths divided by one power of two, so that no block is larger than LARGEST_BLOCK."""
    factor, sizes = 1, [group.block_size for group in config.groups]
    units = [*sizes, config.hash_block_size, *(group.window for group in config.groups if group.window)]
    while max(sizes) // factor > LARGEST_BLOCK and all(unit % (2 * factor) == 0 for unit in units):
        factor *= 2
    groups = tuple(
        evolve(group, block_size=group.block_size // factor, window=group.window and group.window // factor)
        for group in config.groups
    )
    changes = {
        "max_model_len": min(config.max_model_len // factor, 1 << 16),
        "hash_block_size": config.hash_block_size // factor,
    }
    if config.retention:
        changes["retention"] = config.retention // factor
    if any(group.sharded and (group.block_size % config.interleave) for group in groups):
        changes["interleave"] = 1
    return configs.reconfigure(config, groups=groups, clip_block_size=None, **changes)


# --- random ones --------------------------------------------------------------------------------------------------


def generated(seed: int, count: int) -> Iterator[Arguments]:
    """Yield ``count`` random configurations that the model accepts, the same for the same seed."""
    found, number = 0, 0
    while found < count:
        arguments = _random(Random(f"{seed}/{number}"), f"seed {seed}, number {number}")
        number += 1
        try:
            arguments.resolve()
        except ConfigError:
            continue
        found += 1
        yield arguments


def _random(random: Random, origin: str) -> Arguments:
    base = random.choice(ODD if random.random() < 0.15 else BASES)
    ranks = random.choice((1, 1, 2, 2, 4, 8))
    kinds = ["full_attention"] if random.random() < 0.9 else []
    others = ("mamba_align", "mamba_align", "mamba_align", "sliding_window", "chunked_local", "full_attention")
    kinds += [random.choice(others) for _ in range(random.randrange(0 if kinds else 1, 4))]
    random.shuffle(kinds)
    groups = tuple(_group(random, kind, base, ranks) for kind in kinds)
    settings: dict[str, Any] = {"dcp_size": ranks, "num_blocks": 64, "max_running": random.randint(1, 4)}
    sharded = [group.block_size for group in groups if group.sharded is not False and group.kind == "full_attention"]
    if ranks > 1 and sharded:
        common = gcd(*sharded)
        settings["interleave"] = random.choice([n for n in range(1, common + 1) if common % n == 0])
    if len(groups) > 1 and random.random() < 0.5:
        spans = [group.block_size for group in groups]
        settings["hash_block_size"] = random.choice([n for n in range(1, gcd(*spans) + 1) if gcd(*spans) % n == 0])
    largest = max(group.block_size for group in groups)
    settings["max_model_len"] = min(
        random.randint(1, 12) * largest * random.choice((1, ranks)) + random.choice((0, 0, 1, 5)), LONGEST
    )
    settings["connectors"] = tuple(random.random() < 0.6 for _ in range(random.choice((0, 0, 1, 2, 3))))
    if random.random() < 0.2:
        settings["append_expansion"] = 2
    if random.random() < 0.1:
        settings["caching"] = False
    return Arguments(origin, groups, {name: value for name, value in settings.items() if value != configs.DEFAULTS.get(name)})


def _group(random: Random, kind: str, base: int, ranks: int) -> Group:
    size = base * random.choice((1, 1, 1, 2, 2, 4))
    if kind == "mamba_align":
        return Group(kind, size, speculative_blocks=random.choice((0, 0, 0, 1, 3)))
    if kind == "sliding_window":
        return Group(kind, size, False, window=random.randint(1, 4 * size))
    if kind == "chunked_local":
        return Group(kind, size, window=size * random.randint(1, 4))
    return Group(kind, size, False if ranks > 1 and random.random() < 0.2 else None)


# --- smaller ones -------------------------------------------------------------------------------------------------


def row_size(arguments: Arguments) -> tuple[Any, ...]:
    """Return what minimising makes smaller where rows are filled: groups, ranks, the entries of a row, then the rest."""
    groups, ranks, *_ = arguments.size
    length = max(arguments.settings.get("max_model_len", 1024), 128)
    return groups, ranks, sum(-(-length // group.block_size) for group in arguments.groups), arguments.size


def minimised(
    arguments: Arguments,
    fails: Callable[[Arguments], bool],
    attempts: int = 200,
    size: Callable[[Arguments], tuple[Any, ...]] = lambda arguments: arguments.size,
) -> Arguments:
    """Return the smallest configuration found that still fails: fewer groups, fewer ranks, smaller sizes, fewer settings."""
    tried = 0
    best = arguments
    improved = True
    while improved and tried < attempts:
        improved = False
        for smaller in _smaller(best):
            if size(smaller) >= size(best):
                continue
            tried += 1
            if tried > attempts:
                break
            if fails(smaller):
                best, improved = smaller, True
                break
    return best


def _smaller(arguments: Arguments) -> Iterator[Arguments]:
    """Yield configurations that are one step smaller."""
    groups, settings = arguments.groups, arguments.settings
    for index in range(len(groups)):
        if len(groups) > 1:
            yield evolve(arguments, groups=groups[:index] + groups[index + 1 :])
    ranks = settings.get("dcp_size", 1)
    for fewer in (1, 2, ranks // 2):
        if 1 <= fewer < ranks:
            yield evolve(arguments, settings=evolve_settings(settings, dcp_size=fewer, interleave=None))
    for name in sorted(settings):
        if name not in ("dcp_size", "max_model_len"):
            yield evolve(arguments, settings=evolve_settings(settings, **{name: None}))
    if all(group.block_size % 2 == 0 for group in groups):
        halved = tuple(evolve(group, block_size=group.block_size // 2) for group in groups)
        unit = settings.get("hash_block_size")
        length = max(settings.get("max_model_len", 1024) // 2, 1)
        changes = {"hash_block_size": unit and max(unit // 2, 1), "max_model_len": length, "interleave": None}
        yield evolve(arguments, groups=halved, settings=evolve_settings(settings, **changes))
    for index, group in enumerate(groups):
        for size in (1, group.block_size // 2, group.block_size - 1):
            if 1 <= size < group.block_size:
                yield _with_group(arguments, index, evolve(group, block_size=size))
        if group.speculative_blocks:
            yield _with_group(arguments, index, evolve(group, speculative_blocks=0))
        if group.window and group.window > 1:
            yield _with_group(arguments, index, evolve(group, window=group.window // 2))
    length = settings.get("max_model_len", 1024)
    for shorter in (1, length // 2, length - 1):
        if 1 <= shorter < length:
            yield evolve(arguments, settings={**settings, "max_model_len": shorter})


def _with_group(arguments: Arguments, index: int, group: Group) -> Arguments:
    groups = (*arguments.groups[:index], group, *arguments.groups[index + 1 :])
    return evolve(arguments, groups=groups)
