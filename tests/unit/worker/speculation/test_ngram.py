"""The n-gram proposer, compared with a search that tries every place."""

import random
from itertools import pairwise

import numpy as np
import pytest

from pagewire_worker.speculation.ngram import NgramFinder
from pagewire_worker.speculation.token_index import TokenIndex


def proposed(tokens, most=4, shortest=1, longest=3):
    found = NgramFinder(shortest, longest).find(0, np.array(tokens, dtype=np.int32), most)
    return list(found)


def by_trying(tokens, most, shortest, longest):
    """What followed the newest place where as many of the last tokens as possible occurred."""
    for length in range(min(longest, len(tokens) - 1), shortest - 1, -1):
        for end in range(len(tokens) - 1, length - 1, -1):
            if tokens[end - length : end] == tokens[-length:]:
                period = tokens[end:]
                return [period[index % len(period)] for index in range(most)]
    return []


def test_what_followed_the_last_tokens_is_proposed():
    assert proposed([1, 2, 3, 4, 5, 9, 1, 2, 3]) == [4, 5, 9, 1]


def test_the_longest_match_wins_and_then_the_newest():
    assert proposed([7, 2, 3, 4, 8, 2, 3, 5, 7, 2, 3], most=1) == [4]
    assert proposed([2, 3, 4, 2, 3, 5, 2, 3], most=1) == [5]


def test_a_short_period_is_repeated():
    assert proposed([4, 1, 2, 1, 2], most=6) == [1, 2, 1, 2, 1, 2]
    assert proposed([4, 4], most=3) == [4, 4, 4]


@pytest.mark.parametrize("tokens", [[1], [1, 2, 3], [1, 2, 9, 2]])
def test_nothing_is_proposed_without_a_match(tokens):
    assert proposed(tokens, shortest=2) == []


def test_an_index_that_grows_finds_what_a_new_one_finds():
    """Tokens come one by one, in bulk, and beyond what the index keeps."""
    dice = random.Random(2)
    tokens = np.array([dice.randrange(40) for _ in range(9000)], dtype=np.int32)
    grown, num_tokens = TokenIndex(2, most_tokens=4096), 0
    while num_tokens < len(tokens):
        num_tokens = min(len(tokens), num_tokens + dice.choice([1, 2, 5, 127, 128, 700]))
        fresh = TokenIndex(2, most_tokens=4096)
        for index in (grown, fresh):
            index.follow(tokens[:num_tokens])
        found = list(grown.places())
        assert found == list(fresh.places())
        pairs = pairwise(tokens[:num_tokens])
        last = tuple(tokens[num_tokens - 2 : num_tokens])
        equal = [end for end, pair in enumerate(pairs, 2) if pair == last][:-1]
        right = [end for end in equal if end > num_tokens - 4096][::-1]
        assert [end for end in found if end in right] == right[: len(found)]
    grown.follow(tokens[:3])
    assert list(grown.places()) == []


def test_histories_at_random():
    dice = random.Random(1)
    num_found = 0
    for _ in range(2000):
        tokens = [dice.randrange(4) for _ in range(dice.randrange(1, 30))]
        shortest = dice.randrange(1, 4)
        options = (dice.randrange(1, 9), shortest, shortest + dice.randrange(3))
        found = proposed(tokens, *options)
        assert found == by_trying(tokens, *options), (tokens, options)
        num_found += bool(found)
    assert num_found > 500
