"""A deployment as a configuration of the model, and what of it the model does not have."""

from __future__ import annotations

from attrs import evolve

from kvproof.core import config as configs
from kvproof.core import kinds
from kvproof.core.config import Config, Group, Offload
from kvproof.core.errors import ConfigError
from kvproof.spec.deployments import mistakes
from kvproof.spec.deployments.read import DeploymentError
from kvproof.spec.deployments.schema import Deployment

ROWS = 2
"""Worker rows of an explained run: one request at a time, and one to spare."""


def group_names(deployment: Deployment) -> tuple[str, ...]:
    """Return a name per cache group; several of one entry are numbered from 1."""
    names: list[str] = []
    for group in deployment.groups:
        count = group.count.value
        names += [group.name if count == 1 else f"{group.name} {index + 1}" for index in range(count)]
    return tuple(names)


def groups(deployment: Deployment) -> tuple[Group, ...]:
    """Return the cache groups of the model, in the order of the file."""
    found: list[Group] = []
    for group in deployment.groups:
        spec = Group(
            group.kind,
            group.block_size.value,
            sharded=group.sharded.value if group.sharded is not None else None,
            window=group.window.value if group.window is not None else None,
            speculative_blocks=group.speculative_blocks.value if group.speculative_blocks is not None else 0,
            draft=group.draft is not None and group.draft.value,
        )
        found += [spec] * group.count.value
    return tuple(found)


HOST_CONNECTOR = "SimpleCPUOffloadConnector"
"""The connector of the host tier: where a deployment has one it brings its own entry (``Config.children``)."""


def offload(deployment: Deployment, num_blocks: int) -> Offload | None:
    """Return the host tier of a deployment, of ``num_blocks`` blocks where it does not say how many; None without one."""
    host = deployment.settings.host
    if host is None:
        return None
    return Offload(mode=host.mode.value, num_blocks=num_blocks if host.blocks is None else host.blocks.value)


def other_connectors(deployment: Deployment) -> tuple[bool, ...]:
    """Return what the connectors besides the host tier's can do with a divergent hit (T13)."""
    settings = deployment.settings
    hosted = settings.host is not None
    return tuple(known.divergent.value for known in settings.connectors if not (hosted and known.name == HOST_CONNECTOR))


def lacks(deployment: Deployment) -> str | None:
    """Return what this version of the model does not have for a deployment, in words; None if it has everything."""
    for group in deployment.groups:
        if group.kind not in kinds.NAMES:
            return f"no {group.kind} groups{mistakes.nearest(group.kind, kinds.NAMES)}, only {', '.join(kinds.NAMES)}"
    return None


def configure(deployment: Deployment, num_blocks: int, step_tokens: int) -> Config:
    """Return the configuration of a deployment for a pool of ``num_blocks`` blocks and steps of ``step_tokens`` tokens.

    Raises DeploymentError if the model lacks something or refuses the combination.
    """
    missing = lacks(deployment)
    if missing is not None:
        raise DeploymentError(deployment.name, f"this version of the model has {missing}")
    settings = deployment.settings
    optional = {
        "interleave": settings.interleave,
        "hash_block_size": settings.hash_block_size,
        "num_draft_tokens": settings.num_draft_tokens,
    }
    given = {name: value.value for name, value in optional.items() if value is not None}
    retention = settings.retention.value
    try:
        return configs.configure(
            groups(deployment),
            dcp_size=settings.dcp_size.value,
            max_model_len=settings.max_model_len.value,
            retention=None if isinstance(retention, str) else retention,
            connectors=other_connectors(deployment),
            offload=offload(deployment, num_blocks),
            use_eagle=settings.eagle is not None and settings.eagle.value,
            num_blocks=num_blocks,
            max_running=ROWS,
            max_chunk=step_tokens,
            **given,  # type: ignore[arg-type]
        )
    except ConfigError as error:
        raise DeploymentError(deployment.name, _as_the_file_names_it(str(error))) from error


NAMES_IN_FILES = {
    "offload.num_blocks": "settings.host.blocks",
    "max_chunk": "settings.step_tokens",
    "dcp_size": "settings.dcp_size",
    "max_model_len": "settings.max_model_len",
    "interleave": "settings.interleave",
    "hash_block_size": "settings.hash_block_size",
    "num_draft_tokens": "settings.num_draft_tokens",
}
"""The name of a setting at the begin of a refusal of ``configure`` -> where a deployment file has it."""


def _as_the_file_names_it(refusal: str) -> str:
    name, blank, rest = refusal.partition(" must ")
    return f"{NAMES_IN_FILES.get(name, name)}{blank}{rest}"


def with_closed_gate(config: Config) -> Config:
    """Return the configuration with fine-grained hits switched off, so that hits end at multiples of S (2.4, condition 2)."""
    return evolve(config, fine_grained=False, alignment=config.scheduler_block_size, pins_junctions=False)
