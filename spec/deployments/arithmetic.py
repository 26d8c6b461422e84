"""The arithmetic behind a block size: an attention page must hold one recurrent state (docs/deployments.md, rules).

All functions are for one layer on one rank of ``tp`` tensor-parallel ranks; sizes in bytes, block sizes in tokens.
"""

from __future__ import annotations

from kvproof.spec.deployments.schema import Arithmetic, Deployment, HeadsToken, LatentToken, LinearState, Mamba2State

CONV_BYTES = 2
"""Bytes of one channel of the convolution state."""


def state_bytes(state: LinearState | Mamba2State, tp: int, drafts: int) -> int:
    """Return the bytes of one recurrent state; the convolution keeps a column per draft token more."""
    columns = state.conv_kernel.value - 1 + drafts
    if isinstance(state, LinearState):
        matrix = state.value_heads.value // tp * state.head_dim.value**2
        channels = (2 * state.key_heads.value + state.value_heads.value) * state.head_dim.value // tp
    else:
        matrix = state.heads.value // tp * state.head_dim.value * state.state_size.value
        wide = state.heads.value * state.head_dim.value + 2 * state.state_groups.value * state.state_size.value
        channels = wide // tp
    return matrix * state.state_bytes.value + columns * channels * CONV_BYTES


def token_bytes(token: HeadsToken | LatentToken, tp: int) -> int:
    """Return the bytes that one token takes in one attention layer; a head is never split."""
    if isinstance(token, HeadsToken):
        return 2 * max(token.kv_heads.value // tp, 1) * token.head_dim.value * token.kv_bytes.value
    return (token.latent.value + token.rope.value) * token.kv_bytes.value


def block_size(arithmetic: Arithmetic, tp: int, drafts: int) -> int:
    """Return the smallest multiple of the unit whose page holds one state."""
    page = arithmetic.unit.value * token_bytes(arithmetic.token, tp)
    pages = -(-state_bytes(arithmetic.state, tp, drafts) // page)
    return arithmetic.unit.value * pages


def group_counts(layers: tuple[int, ...]) -> tuple[int, ...]:
    """Return into how many groups the layers of each kind are cut.

    All groups have one size: the smallest layer count of any kind, or the largest if it is below 1.5 times the smallest.
    """
    low, high = min(layers), max(layers)
    size = high if high < 1.5 * low else low
    return tuple(-(-count // size) for count in layers)


def zeros(deployment: Deployment) -> list[str]:
    """Return which numbers the rules divide by, or multiply a page with, are 0, in words."""
    found: list[str] = []
    given = deployment.arithmetic
    if given is not None:
        tp = deployment.settings.tensor_parallel
        if tp is not None and tp.value == 0:
            found.append("settings.tensor_parallel is 0: a deployment has at least one rank")
        if given.unit.value == 0:
            found.append("arithmetic.unit is 0: give the tokens of which the block size is a multiple")
        if token_bytes(given.token, 1) == 0:
            found.append("arithmetic.token takes 0 bytes: give the sizes of one token's keys and values")
    for index, group in enumerate(deployment.groups):
        if group.layers is not None and group.layers.value == 0:
            found.append(f"groups[{index}].layers is 0: leave layers out if they are not known")
    return found


def differences(deployment: Deployment) -> list[str]:
    """Return what a deployment calls computed although the rules say otherwise, in words."""
    found = zeros(deployment)
    if found:
        return found
    settings = deployment.settings
    if deployment.arithmetic is not None:
        tp = settings.tensor_parallel.value if settings.tensor_parallel is not None else 1
        drafts = settings.num_draft_tokens.value if settings.num_draft_tokens is not None else 0
        size = block_size(deployment.arithmetic, tp, drafts)
        found += [
            f"groups[{index}].block_size is {group.block_size.value}, the arithmetic gives {size}"
            for index, group in enumerate(deployment.groups)
            if group.block_size.value != size
        ]
    layers = tuple(group.layers.value for group in deployment.groups if group.layers is not None)
    if len(layers) == len(deployment.groups):
        counts = group_counts(layers)
        found += [
            f"groups[{index}].count is {group.count.value}, {layers} layers make {counts[index]} groups"
            for index, group in enumerate(deployment.groups)
            if group.count.computed is not None and group.count.value != counts[index]
        ]
    return found
