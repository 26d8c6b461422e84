"""A deployment file as types: settings, groups, the arithmetic behind the block size, sources and known facts.

Every number says where it comes from: ``from`` names entries of ``sources``, ``computed`` says by which rule it follows from
other numbers, ``assumed`` says why nothing better was found. Token counts in tokens, sizes in bytes where a name says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, field

FORMAT = "kvproof-deployment"
VERSION = 1
WITHOUT_SOURCE = "given without a source"

Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,79}$")]
Text = Annotated[str, Meta(min_length=1, max_length=2000)]
Count = Annotated[int, Meta(ge=0, le=1 << 24)]
Basis = Literal["published", "computed", "assumed"]


class _Strict(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all types here."""


class _Sourced(_Strict, frozen=True):
    """Where a value comes from; the value itself stands in the subclass."""

    sources: tuple[str, ...] = field(name="from", default=())
    computed: Text | None = None
    assumed: Text | None = None

    @property
    def basis(self) -> Basis:
        """Say whether the value was published, follows from others, or was assumed."""
        if self.sources:
            return "published"
        return "computed" if self.computed is not None else "assumed"


class Number(_Sourced, frozen=True, kw_only=True):
    """An integer with its source."""

    value: Count


class Flag(_Sourced, frozen=True, kw_only=True):
    """A yes or no with its source."""

    value: bool


class Retention(_Sourced, frozen=True, kw_only=True):
    """A retention setting (2.9) with its source: ``dense``, 0 (sparse) or a positive multiple of S in tokens."""

    value: Count | Literal["dense"]


class Mode(_Sourced, frozen=True, kw_only=True):
    """How blocks get to the host (T26, T33) with its source: ``eager`` or ``lazy``."""

    value: Literal["eager", "lazy"]


Sourced = Number | Flag | Retention | Mode


class Source(_Strict, frozen=True):
    """Something published: where it can be read, and what it says that matters here."""

    url: Annotated[str, Meta(pattern=r"^https://[^\s]+$")]
    says: Text


class Connector(_Strict, frozen=True):
    """A KV connector; ``divergent`` is its ``supports_divergent_local_hybrid_hits`` (T13)."""

    name: Text
    divergent: Flag


class Host(_Strict, frozen=True):
    """A host tier (SimpleCPU) behind the device pool. Without ``blocks``, null block included, nothing is evicted from it."""

    mode: Mode
    blocks: Number | None = None


class Settings(_Strict, frozen=True):
    """What the deployment sets, in tokens and counts; what may be left out has the value of ``configure`` (3.1)."""

    dcp_size: Number
    max_model_len: Number
    retention: Retention
    step_tokens: Number
    tensor_parallel: Number | None = None
    interleave: Number | None = None
    hash_block_size: Number | None = None
    num_draft_tokens: Number | None = None
    eagle: Flag | None = None
    connectors: tuple[Connector, ...] = ()
    host: Host | None = None


class Group(_Strict, frozen=True):
    """``count`` cache groups of one kind that share ``layers`` layers; ``block_size`` is tokens per block on one rank."""

    name: Text
    kind: Text
    count: Number
    block_size: Number
    layers: Number | None = None
    sharded: Flag | None = None
    window: Number | None = None
    speculative_blocks: Number | None = None
    draft: Flag | None = None


class LinearState(_Strict, frozen=True, tag_field="kind", tag="linear"):
    """The state of one gated linear-attention layer (GDN, KDA): a matrix per value head and a short convolution."""

    value_heads: Number
    key_heads: Number
    head_dim: Number
    conv_kernel: Number
    state_bytes: Number


class Mamba2State(_Strict, frozen=True, tag_field="kind", tag="mamba2"):
    """The state of one Mamba-2 layer: a matrix per head and a short convolution."""

    heads: Number
    head_dim: Number
    state_size: Number
    state_groups: Number
    conv_kernel: Number
    state_bytes: Number


class HeadsToken(_Strict, frozen=True, tag_field="kind", tag="heads"):
    """Keys and values of one token in one attention layer."""

    kv_heads: Number
    head_dim: Number
    kv_bytes: Number


class LatentToken(_Strict, frozen=True, tag_field="kind", tag="latent"):
    """The latent of one token in one MLA layer; ``rope`` is the part that carries positions."""

    latent: Number
    rope: Number
    kv_bytes: Number


class Arithmetic(_Strict, frozen=True):
    """From which the block size follows: the attention page must hold one recurrent state; ``unit`` in tokens."""

    unit: Number
    state: LinearState | Mamba2State
    token: HeadsToken | LatentToken


class Fact(_Strict, frozen=True):
    """A hit that was reported or follows from a published rule; the tests ask the model for it. All in tokens."""

    says: Text
    prompt: Count
    resend: Count
    hit: Count
    shared: Count | None = None
    step_tokens: Count | None = None
    gate: Literal["as configured", "closed"] = "as configured"
    sources: tuple[str, ...] = field(name="from", default=())
    assumed: Text | None = None


class Deployment(_Strict, frozen=True):
    """One deployment. ``status``: real (as served somewhere), example (plausible, not read anywhere), test (a unit test's)."""

    format: Literal["kvproof-deployment"]
    version: Literal[1]
    name: Name
    title: Text
    status: Literal["real", "example", "test"]
    about: Text
    settings: Settings
    groups: Annotated[tuple[Group, ...], Meta(min_length=1, max_length=16)]
    sources: dict[str, Source] = {}
    arithmetic: Arithmetic | None = None
    facts: tuple[Fact, ...] = ()


def values(deployment: Deployment) -> Iterator[tuple[str, Sourced]]:
    """Yield every sourced value with its path, for example ``groups[0].block_size``."""
    yield from _below("settings", deployment.settings)
    for index, group in enumerate(deployment.groups):
        yield from _below(f"groups[{index}]", group)
    if deployment.arithmetic is not None:
        yield from _below("arithmetic", deployment.arithmetic)


def _below(path: str, struct: Struct) -> Iterator[tuple[str, Sourced]]:
    for item in msgspec.structs.fields(struct):
        value = getattr(struct, item.name)
        if isinstance(value, Sourced):
            yield f"{path}.{item.encode_name}", value
        elif isinstance(value, Struct):
            yield from _below(f"{path}.{item.encode_name}", value)
        elif isinstance(value, tuple):
            for index, entry in enumerate(value):
                if isinstance(entry, Struct):
                    yield from _below(f"{path}.{item.encode_name}[{index}]", entry)
