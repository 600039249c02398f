"""Rows for the sampler from plain ones."""

from collections.abc import Sequence

import numpy as np
import torch

from pagewire_shared.steps.plan import NewSequence
from pagewire_worker.backend.sampled_tokens import SampledTokens
from pagewire_worker.sampling.grammar_bitmask import GrammarBitmask
from pagewire_worker.sampling.sampler import sample
from pagewire_worker.sampling.sampling_table import SamplingTable
from pagewire_worker.sampling.token_history import TokenHistory
from support.oracles.plain_sampler import PlainRow


def sample_rows(rows: Sequence[PlainRow], *, seed: int = 0) -> SampledTokens:
    """Return what the worker's sampler says to `rows`, together in one batch.

    They lie in slots in random order, with tokens of others behind their ends.
    """
    generator = np.random.default_rng(seed)
    slots = generator.permutation(len(rows) + 3)[: len(rows)]
    table = SamplingTable(len(rows) + 3, torch.device("cpu"))
    vocab = len(rows[0].logits)
    longest = max(len(row.prompt) + len(row.output) for row in rows)
    tokens = generator.integers(0, vocab, (len(rows) + 3, longest + 4))
    for slot, row in zip(slots.tolist(), rows, strict=True):
        known = [*row.prompt, *row.output]
        tokens[slot, : len(known)] = known
        table.set(
            NewSequence(
                slot=slot,
                request_id=b"r",
                choice=row.choice,
                prompt_token_ids=row.prompt,
                emitted_token_ids=(),
                sampling=row.sampling,
                block_ids=[],
                eos_token_ids=sorted(row.eos),
            )
        )
    positions = np.array([len(row.output) for row in rows])
    prompt_lens = np.array([len(row.prompt) for row in rows])
    history = TokenHistory(
        torch.from_numpy(tokens.astype(np.int32)), slots, prompt_lens, prompt_lens + positions
    )
    logits = torch.tensor(np.array([row.logits for row in rows], dtype=np.float32))
    before = logits.clone()
    sampled = sample(logits, table.rows(slots, positions, history), masks_of(rows))
    assert logits.equal(before)
    return sampled


def masks_of(rows: Sequence[PlainRow], num_words: int | None = None) -> GrammarBitmask | None:
    """Return the masks of those that have one."""
    which = [index for index, row in enumerate(rows) if row.mask is not None]
    if not which:
        return None
    num_words = num_words or -(-len(rows[0].logits) // 32)
    bits = np.zeros((len(which), num_words), dtype=np.uint32)
    for line, index in enumerate(which):
        for token in rows[index].mask:
            bits[line, token // 32] |= np.uint32(1 << token % 32)
    return GrammarBitmask(np.array(which), bits.view(np.int32))
