"""Bytes and states where the semantics put them, by hand: ownership, offsets, columns, checkpoints (2.6, 3.6, T0 f)."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from kvproof.core import actions as act  # noqa: E402
from kvproof.core.config import Group, configure  # noqa: E402
from kvproof.gpu import differential, digests, forward, goldens  # noqa: E402
from kvproof.gpu.goldens import Script  # noqa: E402

FULL, WINDOW, MAMBA = "full_attention", "sliding_window", "mamba_align"


def tags(tokens, group=0, context=0):
    """The tag of each position of a prefix."""
    digest, found = digests.root(context), []
    for token in tokens:
        digest = digests.following(digest, token)
        found.append(digests.tag(digest, group))
    return found


def state(tokens, group, context=0):
    """The recurrent state behind some tokens."""
    now = (0,) * digests.WORDS
    for token in tokens:
        now = digests.next_state(now, token, context, group)
    return list(now)


def run(script: Script):
    both = differential.run(script.config, script.actions)
    assert both.difference is None, both.difference.text()
    return both


def attention(block_size, **settings):
    return Script(configure((Group(FULL, block_size, settings.pop("sharded", None)),), num_blocks=8, **settings))


def test_positions_alternate_between_two_ranks():
    # bs 4, N 2, I 1: position p lies on rank p mod 2 at offset p div 2 of the virtual block.
    both = run(attention(4, dcp_size=2).submit(0, 6).chunk(0, 6))
    tag = tags(range(1, 7))
    assert both.tensors.memory[:, 1].tolist() == [[tag[0], tag[2], tag[4], 0], [tag[1], tag[3], tag[5], 0]]


def test_positions_alternate_in_runs_of_the_interleave():
    # bs 4, N 2, I 2: 0 1 | 2 3 | 4 5 | 6 7 go to ranks 0, 1, 0, 1; position 8 begins the next virtual block.
    both = run(attention(4, dcp_size=2, interleave=2).submit(0, 9).chunk(0, 9))
    tag = tags(range(1, 10))
    assert both.tensors.memory[:, 1].tolist() == [[tag[0], tag[1], tag[4], tag[5]], [tag[2], tag[3], tag[6], tag[7]]]
    assert both.tensors.memory[:, 2].tolist() == [[tag[8], 0, 0, 0], [0, 0, 0, 0]]


def test_every_rank_holds_every_position_of_a_replicated_group():
    both = run(attention(4, dcp_size=2, sharded=False).submit(0, 5).chunk(0, 5))
    tag = tags(range(1, 6))
    assert both.tensors.memory[:, 1].tolist() == [tag[:4]] * 2
    assert both.tensors.memory[:, 2].tolist() == [[tag[4], 0, 0, 0]] * 2


def test_a_context_has_tags_of_its_own():
    script = attention(4).do(act.Submit(0, (1, 2, 3), context=5)).chunk(0, 3)
    assert run(script).tensors.memory[0, 1].tolist() == [*tags((1, 2, 3), context=5), 0]


def test_slots_of_what_another_rank_owns_are_none():
    both = run(attention(4, dcp_size=2).submit(0, 6).chunk(0, 6))
    found = forward.slots(both.tensors, 0, 0, torch.arange(6))
    assert found.tolist() == [[4, -1, 5, -1, 6, -1], [-1, 4, -1, 5, -1, 6]]
    assert forward.local_lengths(both.tensors, [6, 1]).tolist() == [[3, 3], [1, 0]]


def test_a_state_lies_in_the_column_in_which_its_chunk_ends():
    # Mamba blocks of 4: the chunk of 6 tokens leaves its state in column 1, nothing in column 0.
    script = goldens.hybrid(4, 4, max_model_len=32).submit(0, 7).chunk(0, 4).chunk(0, 3)
    both = run(script)
    table = both.tensors.requests[0].groups[1].table.tolist()
    held = [block for block in table if block]
    last = both.tensors.memory[0, held[-1], : digests.WORDS].tolist()
    assert last == state(range(1, 8), 1)


def test_states_of_accepted_drafts_stand_behind_the_running_column():
    # One token and two drafts from 8, blocks of 8, two speculative blocks: states at 9, 10, 11 in columns 1, 2, 3.
    script = goldens.hybrid(8, 8, spare=2, num_draft_tokens=2, max_model_len=64).submit(0, 8).chunk(0, 8)
    script.do(act.BeginStep()).plan(0, 1, 7, 8).close((7, 5))
    both = run(script)
    row = both.tensors.rows
    assert row.columns[0][1] == 1
    assert row.accepted[0] == 2
    blocks = both.model.worker.rows[1][0]
    kept = (*range(1, 9), 9, 7)
    assert both.tensors.memory[0, blocks[1], : digests.WORDS].tolist() == state(kept[:9], 1)
    assert both.tensors.memory[0, blocks[2], : digests.WORDS].tolist() == state(kept, 1)


def test_the_next_chunk_goes_on_from_the_kept_draft():
    script = goldens.hybrid(8, 8, spare=2, num_draft_tokens=2, max_model_len=64).submit(0, 8).chunk(0, 8)
    script.do(act.BeginStep()).plan(0, 1, 7, 8).close((7, 5)).chunk(0, 1)
    both = run(script)
    tokens = (*range(1, 9), 9, 7, 5)
    column = both.tensors.rows.columns[0][1]
    block = both.model.worker.rows[1][0][column]
    assert both.tensors.memory[0, block, : digests.WORDS].tolist() == state(tokens, 1)


def output(tokens, config):
    """What the last position of a prompt gives, from the definition: no blocks, no ranks, no cache."""
    total = 0
    for group, spec in enumerate(config.groups):
        if spec.kind == MAMBA:
            total += digests.state_part(tuple(state(tokens, group)), group)
        else:
            first = max(len(tokens) - spec.window, 0) if spec.kind == WINDOW else 0
            total += sum(digests.weight(at) * tag for at, tag in enumerate(tags(tokens, group)) if at >= first)
    return digests.signed(total)


@pytest.mark.parametrize("dcp_size", [1, 2, 4])
def test_an_output_is_a_function_of_the_tokens_alone(dcp_size):
    groups = (Group(FULL, 4), Group(WINDOW, 4, False, window=3), Group(MAMBA, 4))
    script = Script(configure(groups, dcp_size=dcp_size, num_blocks=40, max_model_len=64))
    both = run(script.submit(0, 9).chunk(0, 8).chunk(0, 1))
    assert both.outputs[-1][2] == output(range(1, 10), script.config)


def test_an_output_depends_on_every_byte_that_is_read():
    script = attention(4, dcp_size=2).submit(0, 6).chunk(0, 5)
    both = run(script)
    both.tensors.memory[1, 1, 1] += 1  # position 3
    for action in script.do(act.BeginStep()).plan(0, 1).actions[len(both.actions) :]:
        both.act(action)
    assert both.difference is not None
    assert both.difference.part == "bytes"
    assert dict(both.difference.place) | {"block": 1, "rank": 1, "slot": 1, "position": 3} == dict(both.difference.place)
