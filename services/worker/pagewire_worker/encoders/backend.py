"""Runs an encoder for the model runner. Its KV blocks have no content."""

from collections.abc import Callable

import torch
from torch import Tensor

from pagewire_worker.backend.adapters import AdapterRows
from pagewire_worker.backend.backend import StepBatch
from pagewire_worker.backend.sampled_tokens import SampledTokens
from pagewire_worker.encoders.network import Encoder
from pagewire_worker.kv.kv_cache import CacheShape, KvCache
from pagewire_worker.plan.plan_error import PlanError

BOOKKEEPING = CacheShape(num_layers=1, num_kv_heads=1, head_dim=1)
"""Shape of the cache: as small as a block can be."""


class EncoderBackend:
    """A ModelBackend that computes whole prompts.

    On CPUs it runs one prompt after the other, so that no bit depends on the batch.

    Args:
        on_layer: Called after each layer.
    """

    def __init__(self, encoder: Encoder, kv_cache: KvCache, on_layer: Callable[[], None]) -> None:
        self._encoder = encoder
        self._kv_cache = kv_cache
        self._on_layer = on_layer
        self._is_one_by_one = kv_cache.device.type == "cpu"

    @property
    def kv_cache(self) -> KvCache:
        """The blocks, which nothing reads."""
        return self._kv_cache

    @property
    def kernel_set(self) -> str:
        """Names of the implementations in use."""
        return "encoder,attention=sdpa,linear=torch"

    @property
    def is_exact(self) -> bool:
        """Whether outputs do not depend on the batch."""
        return self._is_one_by_one

    @property
    def embedding_size(self) -> int:
        """Length of a hidden state."""
        return self._encoder.spec.hidden_size

    def forward(self, batch: StepBatch) -> Tensor:
        """Compute whole prompts and return the states of the requested rows, [outputs, hidden].

        Raises:
            PlanError: A prompt does not begin or end in this step.
        """
        lengths = batch.attention.query_lens.tolist()
        if lengths != batch.attention.seq_lens.tolist():
            raise PlanError("an encoder computes whole prompts")
        groups = [[length] for length in lengths] if self.is_exact else [lengths]
        sizes = [sum(group) for group in groups]
        types = batch.token_types
        parts = zip(
            groups,
            batch.token_ids.split(sizes),
            batch.positions.split(sizes),
            types.split(sizes) if types is not None else [None] * len(groups),
            strict=True,
        )
        states = [
            self._encoder.forward(ids, positions, kinds, group, self._on_layer)
            for group, ids, positions, kinds in parts
        ]
        return torch.cat(states).index_select(0, batch.output_rows)

    def greedy(self, hidden: Tensor, adapters: AdapterRows | None = None) -> SampledTokens:
        """Raise PlanError: an encoder has no logits."""
        raise PlanError("an encoder generates nothing")

    def logits(self, hidden: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        """Raise PlanError: an encoder has no logits."""
        raise PlanError("an encoder generates nothing")
