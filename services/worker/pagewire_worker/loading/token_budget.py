"""Measures how many tokens a step on a CPU computes by default, so that streams stay smooth.

A step with prompts delays every decoding stream, and a first token waits for the step in which its
prompt ends. Larger steps gain little: the kernels reach their speed with a few dozen rows. So the
budget is the number of tokens that the machine computes in SHARED_SECONDS. It is measured once and
kept in a file. A long prompt that runs alone delays no stream, so its steps are longer.
"""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pagewire_worker.backend.attention import AttentionMetadata
from pagewire_worker.backend.backend import GroupBatch, ModelBackend, StepBatch
from pagewire_worker.host.cpu import processor_identity
from pagewire_worker.host.kept_facts import KeptFacts

SHARED_SECONDS, ALONE_SECONDS = 0.1, 0.5
LEAST_TOKENS = 64
MOST_SHARED_TOKENS, MOST_ALONE_TOKENS = 512, 1024
ROUNDED_TO = 32

MEASURED_TOKENS = 128
MEASURED_TIMES = 2
AFFORDABLE_SECONDS = 0.5
"""A measurement that takes longer is not repeated at the next start."""


@dataclass(frozen=True, slots=True)
class StepTokens:
    """Most tokens of a step: if several sequences share it, and in any case."""

    shared: int
    most: int


def choose_budget(seconds_per_token: float) -> StepTokens:
    """Return the tokens of a step for a machine with this time per token."""

    def tokens(seconds: float, most: int) -> int:
        found = int(seconds / seconds_per_token) // ROUNDED_TO * ROUNDED_TO
        return min(max(found, LEAST_TOKENS), most)

    return StepTokens(
        tokens(SHARED_SECONDS, MOST_SHARED_TOKENS), tokens(ALONE_SECONDS, MOST_ALONE_TOKENS)
    )


def calibrated_budget(
    backend: ModelBackend, model: str, max_model_len: int, cache_folder: Path
) -> StepTokens:
    """Return the tokens of a step for this model on this machine, measured now or earlier.

    Args:
        backend: The model over its cache, whose first blocks are overwritten.
        model: Identifies the model and the type of its weights.
        max_model_len: Longest sequence.
    """
    num_tokens = min(MEASURED_TOKENS, max_model_len)
    known = _Known(cache_folder / "step_seconds.json", backend, model)
    best = known.seconds
    if best is None or best * num_tokens * MEASURED_TIMES < AFFORDABLE_SECONDS:
        # Other work on the machine can only make a measurement slower.
        measured = _seconds_per_token(backend, num_tokens, time.perf_counter)
        best = measured if best is None else min(best, measured)
        known.keep(best)
    return choose_budget(best)


def _seconds_per_token(backend: ModelBackend, num_tokens: int, clock: Callable[[], float]) -> float:
    batch = probe_batch(backend, num_tokens, torch.tensor([num_tokens - 1]))
    seconds = []
    for _ in range(MEASURED_TIMES):
        began = clock()
        backend.forward(batch)
        seconds.append(clock() - began)
    return min(seconds) / num_tokens


def probe_batch(backend: ModelBackend, num_tokens: int, output_rows: Tensor) -> StepBatch:
    """Return a prompt of `num_tokens` in the first blocks of the cache, for measurements.

    Args:
        output_rows: Rows whose states are returned, [outputs].
    """
    block_size = backend.kv_cache.block_size
    positions = torch.arange(num_tokens)
    blocks = np.arange(-(-num_tokens // block_size), dtype=np.int64)
    metadata = AttentionMetadata(np.array([0, num_tokens]), np.array([num_tokens]), blocks[None, :])
    num_further = backend.kv_cache.num_groups - 1
    return StepBatch(
        token_ids=torch.zeros(num_tokens, dtype=torch.int64),
        positions=positions,
        slot_mapping=positions,
        output_rows=output_rows,
        attention=metadata,
        # Content does not matter, so all groups may write to the same blocks.
        further_groups=(GroupBatch(positions, metadata),) * num_further,
    )


class _Known:
    """Earlier measurements of the same model, kernels and machine."""

    def __init__(self, path: Path, backend: ModelBackend, model: str) -> None:
        cache = backend.kv_cache
        facts = [
            model,
            backend.kernel_set,
            torch.get_num_threads(),
            backend.embedding_size,
            cache.bytes_per_block,
            cache.block_size,
            str(cache.layers[0].key.dtype),
            processor_identity(),
        ]
        self._facts = KeptFacts(path)
        self._key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]

    @property
    def seconds(self) -> float | None:
        """Seconds per token; None without a measurement."""
        value = self._facts.get(self._key)
        return value if isinstance(value, float) and value > 0 else None

    def keep(self, seconds: float) -> None:
        """Store a measurement."""
        self._facts.keep(self._key, seconds)
