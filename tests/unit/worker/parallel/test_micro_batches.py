"""Micro-batches of a step: each token is in one, with the context that it has in the whole step."""

import random

import numpy as np
import pytest
import torch

from pagewire_worker.backend.attention import AttentionMetadata
from pagewire_worker.backend.backend import GroupBatch, StepBatch
from pagewire_worker.parallel.micro_batches import joined, num_micro_batches, split_batch


def batch_of(generator: random.Random) -> StepBatch:
    """Return a step of several sequences, with outputs out of order, in two cache groups."""
    new = [generator.choice([1, 1, 2, 17, 40]) for _ in range(generator.randrange(1, 9))]
    computed = [generator.randrange(50) for _ in new]
    starts, lengths = np.cumsum([0, *new]), np.array(computed) + np.array(new)
    num_tokens = int(starts[-1])
    positions = [
        at for have, own in zip(computed, new, strict=True) for at in range(have, have + own)
    ]
    rows = generator.sample(range(num_tokens), generator.randrange(num_tokens))
    tables = np.arange(len(new) * 8).reshape(len(new), 8)
    first, second = (AttentionMetadata(starts, lengths, own) for own in (tables, tables + 100))
    return StepBatch(
        token_ids=torch.arange(num_tokens),
        positions=torch.tensor(positions),
        slot_mapping=torch.arange(num_tokens) + 7,
        output_rows=torch.tensor(rows, dtype=torch.int64),
        attention=first,
        faults=torch.zeros(num_tokens, dtype=torch.int64),
        further_groups=(GroupBatch(torch.arange(num_tokens) + 9, second),),
    )


def facts(batch: StepBatch) -> list[tuple[int, ...]]:
    """Return what each token reads: itself, its position and slots, its sequence and its length."""
    found = []
    for at, (token, position) in enumerate(zip(batch.token_ids, batch.positions, strict=True)):
        own: list[int] = [int(token), int(position)]
        for group in batch.groups:
            attention = group.attention
            seq = int(np.searchsorted(attention.query_starts, at, side="right")) - 1
            end = int(attention.query_starts[seq + 1])
            own += [int(group.slot_mapping[at]), *attention.block_tables[seq].tolist()]
            # Tokens of its sequence in the cache, up to itself.
            own.append(int(attention.seq_lens[seq]) - (end - at - 1))
        found.append(tuple(own))
    return found


@pytest.mark.parametrize("seed", range(40))
def test_tokens_read_the_same_in_micro_batches(seed: int) -> None:
    generator = random.Random(seed)
    batch = batch_of(generator)
    parts = split_batch(batch, min(generator.randrange(1, 6), len(batch.token_ids)))
    assert [fact for part in parts for fact in facts(part.batch)] == facts(batch)
    states = [part.batch.token_ids[part.batch.output_rows][:, None] for part in parts]
    assert torch.equal(joined(parts, states)[:, 0], batch.token_ids[batch.output_rows])
    for part in parts:
        assert part.batch.faults is not None
        part.batch.faults.add_(1)
        for group in part.batch.groups:
            assert group.attention.query_starts[0] == 0
            assert group.attention.query_starts[-1] == len(part.batch.token_ids)
            assert (group.attention.query_lens > 0).all()
    assert batch.faults is not None
    assert batch.faults.tolist() == [1] * len(batch.token_ids)


def test_small_steps_are_not_cut() -> None:
    assert [num_micro_batches(tokens, 2) for tokens in (1, 63, 64, 100, 10_000)] == [1, 1, 2, 3, 8]
    assert num_micro_batches(10_000, 1) == 1
