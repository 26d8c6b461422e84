"""The two ways to compute digests, tags, keys and states agree, and what must differ differs."""

import random

import pytest

torch = pytest.importorskip("torch")

from kvproof.gpu import digests  # noqa: E402


def tokens_of(seed: int, count: int) -> list[int]:
    drawn = random.Random(seed)
    return [drawn.choice((0, 1, 2, 2**31 - 1, drawn.randrange(200_000))) for _ in range(count)]


@pytest.mark.parametrize("count", [1, 2, 7, 64, 300])
def test_prefixes_on_tensors_equal_those_in_integers(count):
    tokens = tokens_of(count, count)
    expected, digest = [], digests.root(3)
    for token in tokens:
        digest = digests.following(digest, token)
        expected.append(digest)
    got = digests.prefixes(torch.tensor(digests.root(3)), torch.tensor(tokens))
    assert got.tolist() == expected
    for group in range(3):
        assert digests.tags(got, group).tolist() == [digests.tag(one, group) for one in expected]
        assert digests.keys(got, group).tolist() == [digests.key(one, group) for one in expected]


@pytest.mark.parametrize("count", [1, 5, 33])
def test_states_on_tensors_equal_those_in_integers(count):
    tokens, state, expected = tokens_of(count, count), (0,) * digests.WORDS, []
    for token in tokens:
        state = digests.next_state(state, token, 4, 1)
        expected.append(state)
    got = digests.states(torch.zeros(3, digests.WORDS, dtype=torch.int64), torch.tensor(tokens), 4, 1)
    assert got.shape == (3, digests.WORDS, count)
    for rank in range(3):
        assert [tuple(one) for one in got[rank].t().tolist()] == expected
    assert digests.state_parts(got, 1)[2].tolist() == [digests.state_part(one, 1) for one in expected]


def test_a_chunk_goes_on_where_the_one_before_ended():
    tokens = torch.tensor(tokens_of(9, 40))
    whole = digests.states(torch.zeros(1, digests.WORDS, dtype=torch.int64), tokens, 0, 0)
    first = digests.states(torch.zeros(1, digests.WORDS, dtype=torch.int64), tokens[:13], 0, 0)
    second = digests.states(first[..., -1], tokens[13:], 0, 0)
    assert torch.equal(torch.cat((first, second), -1), whole)


def test_a_state_from_a_wrong_boundary_gives_a_wrong_number():
    tokens = torch.tensor(tokens_of(9, 40))
    whole = digests.states(torch.zeros(1, digests.WORDS, dtype=torch.int64), tokens, 0, 0)
    wrong = digests.states(whole[..., 11], tokens[13:], 0, 0)
    assert not bool((wrong == whole[..., 13:]).any())


def test_groups_contexts_and_positions_are_told_apart():
    digest = digests.following(digests.root(0), 7)
    assert len({digests.tag(digest, group) for group in range(8)}) == 8
    assert len({digests.key(digest, group) for group in range(8)} | {digests.tag(digest, 0)}) == 9
    assert digests.root(0) != digests.root(1)
    # The same token at another position, and in another context, has another tag.
    again = digests.following(digest, 7)
    assert digests.tag(again, 0) != digests.tag(digest, 0)
    zero = (0,) * digests.WORDS
    assert digests.next_state(zero, 7, 0, 0) != digests.next_state(zero, 7, 1, 0)
    assert digests.next_state(zero, 7, 0, 0) != digests.next_state(zero, 7, 0, 1)


def test_weights_on_tensors_equal_those_in_integers():
    assert digests.weights(torch.arange(50)).tolist() == [digests.weight(position) for position in range(50)]


def test_no_key_is_the_one_that_stands_for_none():
    assert digests.key(digests.following(digests.root(0), 1), 0) != 0
