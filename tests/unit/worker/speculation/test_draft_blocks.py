"""The bookkeeping of a draft model's cache, against a cache that remembers what was written."""

import random

import numpy as np

from pagewire_worker.speculation.draft_blocks import DraftBlocks

SIZE, NUM_SLOTS, LONGEST = 4, 5, 40


class WrittenCache:
    """Blocks that remember, at each place, the tokens that were known when it was computed."""

    def __init__(self, num_blocks=16):
        self.blocks = DraftBlocks(
            num_slots=NUM_SLOTS, num_blocks=num_blocks, block_size=SIZE, longest=LONGEST
        )
        self.num_blocks = num_blocks
        self.places = {}

    def compute(self, slot, num_tokens):
        """Write what is between the computed tokens and `num_tokens`, as a model would."""
        own = self.blocks.tokens[slot]
        for at in range(int(self.blocks.num_computed[slot]), num_tokens):
            block = int(self.blocks.tables[slot, at // SIZE])
            self.places[block, at % SIZE] = tuple(own[: at + 1].tolist())
        self.blocks.num_computed[slot] = num_tokens

    def check(self):
        blocks = self.blocks
        for slot in range(NUM_SLOTS):
            num_computed = int(blocks.num_computed[slot])
            assert num_computed <= blocks.num_blocks[slot] * SIZE
            for at in range(num_computed):
                block = int(blocks.tables[slot, at // SIZE])
                assert self.places[block, at % SIZE] == tuple(blocks.tokens[slot, : at + 1])
        tables = [blocks.tables[slot, : blocks.num_blocks[slot]] for slot in range(NUM_SLOTS)]
        held = set(np.concatenate(tables).tolist())
        assert blocks.num_free + len(held) == self.num_blocks


def array(tokens):
    return np.array(tokens, dtype=np.int32)


def test_sequences_at_random():
    """They grow, are guessed, turn out otherwise, end, share, and push each other out."""
    dice = random.Random(1)
    cache = WrittenCache()
    blocks, known = cache.blocks, {}
    num_lacking = num_shared = num_kept = 0
    for _ in range(4000):
        slot = dice.randrange(NUM_SLOTS)
        kind = dice.random()
        if slot not in known or kind < 0.1:
            blocks.drop(slot)
            source = dice.choice([*known, slot])
            stem = known[source][: dice.randrange(30)] if source in known else []
            known[slot] = [*stem, *dice.choices(range(3), k=dice.randrange(1, 5))]
            if source in known and source != slot:
                blocks.share(slot, source, array(known[slot]))
                num_shared += int(blocks.num_blocks[slot])
        elif kind < 0.2 or len(known[slot]) > LONGEST - 8:
            blocks.drop(slot)
            del known[slot]
        else:
            known[slot] += dice.choices(range(3), k=dice.randrange(1, 4))
            begin = blocks.follow(slot, array(known[slot]))
            num_kept += begin
            num_guessed = dice.randrange(4)
            end = len(known[slot]) + num_guessed
            if blocks.reserve(slot, end, {slot}):
                guesses = dice.choices(range(3), k=num_guessed)
                blocks.tokens[slot, len(known[slot]) : end] = guesses
                cache.compute(slot, end)
            else:
                num_lacking += 1
        cache.check()
    assert num_shared > 100
    assert num_kept > 1000
    assert num_lacking == 0  # one sequence fits alone, and the others make room
    blocks.clear()
    assert blocks.num_free == cache.num_blocks


def test_right_guesses_are_kept_and_wrong_ones_are_not():
    cache = WrittenCache()
    blocks = cache.blocks
    assert blocks.follow(0, array([1, 2, 3])) == 0
    assert blocks.reserve(0, 6, {0})
    blocks.tokens[0, 3:6] = [4, 5, 6]
    cache.compute(0, 5)
    assert blocks.follow(0, array([1, 2, 3, 4, 9])) == 4
    cache.compute(0, 5)
    # The last token is computed again: it gives the first draft.
    assert blocks.follow(0, array([1, 2, 3, 4, 9])) == 4


def test_the_pool_is_a_bound_and_the_slot_used_least_recently_makes_room():
    cache = WrittenCache(num_blocks=4)
    blocks = cache.blocks
    for slot in (0, 1):
        blocks.follow(slot, array([slot] * 8))
        assert blocks.reserve(slot, 8, {0, 1})
        cache.compute(slot, 8)
    assert not blocks.reserve(2, 1, {0, 1, 2})
    assert blocks.reserve(0, 8, {0})
    assert blocks.reserve(2, 4, {0, 2})
    assert blocks.num_computed.tolist()[:2] == [8, 0]
    assert blocks.num_free == 1


def test_a_shared_block_is_not_written_by_one_of_its_slots():
    cache = WrittenCache()
    blocks = cache.blocks
    blocks.follow(0, array(range(10)))
    blocks.reserve(0, 10, {0})
    cache.compute(0, 10)
    blocks.share(1, 0, array([0, 1, 2, 3, 4, 5, 6, 7, 99]))
    assert blocks.num_computed[1] == 8
    # The tokens of slot 1 turn out otherwise within the second block: it takes one of its own.
    assert blocks.follow(1, array([0, 1, 2, 3, 4, 77, 78])) == 4
    assert blocks.reserve(1, 7, {1})
    cache.compute(1, 7)
    cache.check()
    assert blocks.tables[0, 0] == blocks.tables[1, 0]
    assert blocks.tables[0, 1] != blocks.tables[1, 1]
