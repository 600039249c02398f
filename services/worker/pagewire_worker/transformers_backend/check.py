"""Compares a model over the paged cache with its plain form in transformers, at the start.

Two short sequences run in pieces, mixed with each other. Then each runs alone and whole, with the
attention of the model's own file. The hidden states differ if tokens of a batch see each other, if
the model counts positions itself, or if it changes its scores before attention. Such a model is
refused, because its output would be wrong.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from pagewire_worker.backend.attention import AttentionMetadata
from pagewire_worker.backend.backend import ModelBackend, StepBatch
from pagewire_worker.kv.kv_cache import KvCache
from pagewire_worker.transformers_backend.interface import NAME
from pagewire_worker.transformers_backend.model import SplitModel
from pagewire_worker.transformers_backend.refusal import Refusal

MAX_LENGTH = 11
BLOCK_SIZE = 4
NUM_BLOCKS = 6
BLOCK_TABLES = ((3, 0, 4), (1, 5, 2))

TOLERANCES = {torch.float32: 1e-3, torch.float16: 0.1, torch.bfloat16: 0.2}
"""Largest relative difference from rounding. Foreign tokens, wrong positions and wrong scores make
differences as large as the states themselves."""

Piece = tuple[int, int, int]
"""(sequence, first position, end)."""


@torch.inference_mode()
def check_against_plain(
    model: SplitModel,
    make_backend: Callable[[KvCache], ModelBackend],
    max_length: int,
    vocab_size: int,
    device: torch.device,
    dtype: torch.dtype,
) -> None:
    """Raise Refusal if the model over the paged cache differs from the model alone.

    Args:
        max_length: Longest sequence that the model takes; at least 2.
    """
    cache = KvCache(
        shape=model.cache_shape,
        num_blocks=NUM_BLOCKS,
        block_size=BLOCK_SIZE,
        device=device,
        dtype=dtype,
    )
    sequences = _sequences(min(MAX_LENGTH, max_length), vocab_size)
    paged = _run_paged(make_backend(cache), sequences, device)
    plain = _run_plain(model, sequences, device)
    for (hidden, logits), (wanted, wanted_logits) in zip(paged, plain, strict=True):
        for what, found, expected in (
            ("hidden states", hidden, wanted),
            ("logits", logits, wanted_logits),
        ):
            difference = _relative_difference(found, expected)
            if not difference <= TOLERANCES[dtype]:
                raise Refusal(
                    f"its {what} over the paged KV cache differ from those without by "
                    f"{difference:.2g}; it uses something that is not supported"
                )


def _sequences(length: int, vocab_size: int) -> list[list[int]]:
    return [
        [(7919 * (index + 3) + 104729 * which) % vocab_size for index in range(length - which)]
        for which in range(2)
    ]


def _pieces(lengths: Sequence[int]) -> list[list[Piece]]:
    """Return two steps: half of the first beside most of the second, then the rest of both."""
    first, second = lengths
    half = max(1, first // 2)
    steps = [[(0, 0, half), (1, 0, second - 1)], [(1, second - 1, second), (0, half, first)]]
    return [[piece for piece in step if piece[1] < piece[2]] for step in steps]


def _run_paged(
    backend: ModelBackend, sequences: Sequence[Sequence[int]], device: torch.device
) -> list[tuple[Tensor, Tensor]]:
    """Return hidden states and logits of each sequence."""
    parts: list[list[Tensor]] = [[] for _ in sequences]
    for step in _pieces([len(sequence) for sequence in sequences]):
        hidden = backend.forward(_batch(step, sequences, device))
        for (which, _, _), part in zip(
            step, hidden.split([e - b for _, b, e in step]), strict=True
        ):
            parts[which].append(part)
    states = [torch.cat(part) for part in parts]
    return [(hidden, backend.logits(hidden)) for hidden in states]


def _batch(
    step: Sequence[Piece], sequences: Sequence[Sequence[int]], device: torch.device
) -> StepBatch:
    tokens = [sequences[which][at] for which, begin, end in step for at in range(begin, end)]
    positions = [at for _, begin, end in step for at in range(begin, end)]
    slots = [
        BLOCK_TABLES[which][at // BLOCK_SIZE] * BLOCK_SIZE + at % BLOCK_SIZE
        for which, begin, end in step
        for at in range(begin, end)
    ]
    lengths = [end - begin for _, begin, end in step]
    return StepBatch(
        token_ids=torch.tensor(tokens, device=device),
        positions=torch.tensor(positions, device=device),
        slot_mapping=torch.tensor(slots, device=device),
        output_rows=torch.arange(len(tokens), device=device),
        attention=AttentionMetadata(
            query_starts=np.cumsum([0, *lengths]).astype(np.int64),
            seq_lens=np.array([end for _, _, end in step], dtype=np.int64),
            block_tables=np.array([BLOCK_TABLES[which] for which, _, _ in step], dtype=np.int64),
        ),
    )


def _run_plain(
    model: SplitModel, sequences: Sequence[Sequence[int]], device: torch.device
) -> list[tuple[Tensor, Tensor]]:
    states: list[Tensor] = []
    handle = model.base.register_forward_hook(
        lambda module, inputs, output: states.append(output.last_hidden_state[0])
    )
    model.causal.set_attn_implementation("eager")
    try:
        logits = [
            model.causal(torch.tensor([sequence], device=device), use_cache=False).logits[0].float()
            for sequence in sequences
        ]
    finally:
        model.causal.set_attn_implementation(NAME)
        handle.remove()
    return list(zip(states, logits, strict=True))


def _relative_difference(found: Tensor, expected: Tensor) -> float:
    expected = expected.float()
    return float((found.float() - expected).norm() / expected.norm().clamp_min(1e-12))
