"""CrossHair confirms the geometry contracts, refutes their twins, and refutes them when a fault is planted."""

import ast
from pathlib import Path

import pytest

pytest.importorskip("crosshair")

from kvproof.proofs import contracts, twins

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 20

EXPECTED = {
    "geometry": [
        "effective_size_scales_iff_sharded",
        "ceiling_covers_and_is_least",
        "attention_row_covers_the_context",
        "mamba_row_covers_the_context",
        "mamba_row_is_never_narrower_than_the_attention_row",
        "aligned_row_is_the_next_multiple",
        "row_guard_is_containment",
        "kernel_blocks_of_two_blocks_are_disjoint",
        "chain_index_names_the_block_end",
        "gate_condition_is_strict_on_one_rank_only",
        "gate_needs_each_condition",
        "owner_is_a_rank",
        "exactly_one_rank_has_a_slot",
        "offset_lies_inside_the_block",
        "place_determines_the_position",
        "replicated_place_determines_the_position",
        "replicated_position_has_a_slot_on_every_rank",
        "one_more_token_adds_to_its_owner",
        "local_lengths_add_up",
        "no_token_is_local_before_the_first",
        "context_is_somewhere_iff_the_prefix_is_not_empty",
    ],
    "boundaries": [
        "checkpoint_is_the_last_multiple_strictly_below",
        "eagle_checkpoint_gives_up_a_unit",
        "replay_boundaries_ascend_below_the_prompt",
        "cacheable_prefix_is_whole_blocks",
        "eagle_prefix_stays_within_the_finalised_tokens",
        "prompt_tail_leaves_the_last_token",
        "window_skips_nothing_that_the_next_position_reads",
        "chunk_skips_up_to_its_start",
        "recurrent_keeps_the_running_state",
        "dense_mask_keeps_every_state",
        "sparse_mask_keeps_the_state_before_the_boundary",
        "interval_mask_keeps_the_interval_ends",
        "clip_never_grows_a_chunk",
        "clip_does_not_touch_decoding",
        "clip_stops_at_the_last_block_boundary",
        "checkpoint_inside_a_chunk_is_inside",
        "segment_end_is_reachable",
        "segment_start_is_not_reachable",
        "load_covers_the_external_tokens",
        "chunk_key_names_the_chunk_end",
        "stored_blocks_are_whole",
        "window_load_stays_within_its_bound",
        "admission_cap_covers_a_window_at_any_offset",
        "host_pool_has_a_block",
    ],
}


def check(path):
    return contracts.check_file(path, seconds=SECONDS, import_path=ROOT / "tests" / "_path")


@pytest.mark.parametrize("module", sorted(EXPECTED))
def test_every_contract_is_confirmed(module):
    verdicts = check(ROOT / "proofs" / f"{module}.py")
    assert verdicts == dict.fromkeys(EXPECTED[module], contracts.CONFIRMED)


@pytest.mark.parametrize("module", sorted(EXPECTED))
def test_every_twin_is_refuted(module, tmp_path):
    source = (ROOT / "proofs" / f"{module}.py").read_text(encoding="utf-8")
    path = tmp_path / "twins.py"
    path.write_text(twins.twin_source(source), encoding="utf-8")
    assert check(path) == dict.fromkeys(EXPECTED[module], contracts.REFUTED)


# (module of the contracts, contracts that must be refuted, the rebinding)
FAULTS = {
    "floor for ceil": (
        "geometry",
        ["ceiling_covers_and_is_least", "attention_row_covers_the_context", "mamba_row_covers_the_context"],
        "geometry.ceil_div = lambda a, b: a // b",
    ),
    "M-GEO-1": (
        "geometry",
        ["effective_size_scales_iff_sharded"],
        "geometry.effective_block_size = lambda block_size, sharded, dcp_size: block_size * dcp_size",
    ),
    "M-GATE-1": (
        "geometry",
        ["gate_condition_is_strict_on_one_rank_only", "gate_needs_each_condition"],
        "geometry.mamba_gate_condition = lambda n, b, h: n == 1 and b > h",
    ),
    "M-GATE-2": (
        "geometry",
        ["gate_condition_is_strict_on_one_rank_only", "gate_needs_each_condition"],
        "geometry.mamba_gate_condition = lambda n, b, h: b >= h",
    ),
    "M-CAP-1": ("geometry", ["row_guard_is_containment"], "geometry.fits_row = lambda start, count, capacity: True"),
    "M-SLOT-1": (
        "geometry",
        ["replicated_position_has_a_slot_on_every_rank"],
        "geometry.owns = lambda p, rank, b, sharded, n, i: geometry.owner_rank(p, b, n, i) == rank",
    ),
    "M-SLOT-2": (
        "geometry",
        ["place_determines_the_position"],
        "geometry.block_offset = lambda p, b, sharded, n, i: p % (b * n) % b",
    ),
    "M-SLOT-3": (
        "geometry",
        ["local_lengths_add_up", "one_more_token_adds_to_its_owner"],
        "geometry.local_length = lambda n, rank, size, i: -(-n // size)",
    ),
    "checkpoint not strictly below": (
        "boundaries",
        ["checkpoint_is_the_last_multiple_strictly_below"],
        "geometry.checkpoint_boundary = lambda n, u, eagle=False: n // u * u",
    ),
    "M-TAIL-4": (
        "boundaries",
        ["prompt_tail_leaves_the_last_token"],
        "geometry.prompt_tail_boundary = lambda p, h, n, rule='P-1': min(p // h, n) * h",
    ),
    "cacheable tokens rounded up": (
        "boundaries",
        ["cacheable_prefix_is_whole_blocks", "eagle_prefix_stays_within_the_finalised_tokens"],
        "geometry.cacheable_tokens = lambda t, fine, s: t if fine else -(-t // s) * s",
    ),
    "clipping forgets the last boundary": (
        "boundaries",
        ["clip_stops_at_the_last_block_boundary"],
        "retention.prefill_stops = lambda **kwargs: ()",
    ),
    "M-REACH-1": (
        "boundaries",
        ["segment_end_is_reachable"],
        "reachability.chunk_reachable = lambda j, n, count, window, eagle=False: j % count < window",
    ),
    "M-PUB-2": (
        "boundaries",
        ["stored_blocks_are_whole"],
        "reachability.storable_blocks = lambda tokens, block_size, sharded, dcp_size: tokens // block_size",
    ),
    "M-BND-1": (
        "boundaries",
        ["window_load_stays_within_its_bound"],
        "reachability.window_block_bound = lambda window, blocks_per_chunk: window * blocks_per_chunk",
    ),
    "M-LOAD-1": (
        "boundaries",
        ["load_covers_the_external_tokens"],
        "reachability.load_range = lambda a, e, size: (a // size, e // size)",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_refuted(fault, tmp_path):
    module, names, rebinding = FAULTS[fault]
    tree = ast.parse((ROOT / "proofs" / f"{module}.py").read_text(encoding="utf-8"))
    every = EXPECTED[module]
    tree.body = [
        node for node in tree.body if not (isinstance(node, ast.FunctionDef) and node.name in every) or node.name in names
    ]
    path = tmp_path / "planted.py"
    path.write_text(f"{ast.unparse(tree)}\n{rebinding}\n", encoding="utf-8")
    assert check(path) == dict.fromkeys(names, contracts.REFUTED)


CONTRACT = """
def sound(n: int) -> None:
    assert n >= 0
    m = n + 1
    assert m > 0
"""


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("x.py:5: info: Confirmed over all paths.", contracts.CONFIRMED),
        ("x.py:5: error: AssertionError: when calling sound(0)", contracts.REFUTED),
        ("x.py:5: error: TypeError: when calling sound(0)", contracts.RAISED),
        ("x.py:5: info: Not confirmed.", contracts.UNDETERMINED),
        ("x.py:9: info: Confirmed over all paths.", contracts.UNDETERMINED),
        ("", contracts.UNDETERMINED),
    ],
)
def test_silence_is_never_read_as_confirmed(printed, expected):
    assert contracts.read_verdicts(CONTRACT, printed) == {"sound": expected}


def test_a_twin_keeps_preconditions_and_calls():
    twin = twins.twin_source(CONTRACT)
    assert "assert n >= 0" in twin
    assert "m = n + 1" in twin
    assert "assert m > 0" not in twin
    assert "assert False" in twin
    assert [node.name for node in twins.contracts_of(ast.parse(twin))] == ["sound"]


@pytest.mark.parametrize(
    "body",
    [
        "    assert n >= 0\n    assert n > -1\n",  # only preconditions: vacuously confirmed
        "    m = n\n    assert m == n\n",
        "    assert n >= 0\n    m = n\n    assert m == n\n    m = 2\n",
    ],
)
def test_a_contract_of_another_shape_is_refused(body):
    with pytest.raises(ValueError, match="preconditions, then assignments, then claims"):
        twins.twin_source(f"def odd(n: int) -> None:\n{body}")


def test_a_file_that_crosshair_cannot_load_is_an_error(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("import no_such_module_anywhere\n" + CONTRACT, encoding="utf-8")
    with pytest.raises(RuntimeError, match=r"broken\.py"):
        check(path)
