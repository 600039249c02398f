"""A ModelBackend whose work is done by all ranks of a group.

Everything above it, slots, sampling, grammars and speculation, runs in rank 0 alone, so ranks
cannot come to different views of a step. Before each part of a step rank 0 sends the others what it
is about to compute: small arrays on the host, which exist already.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from pagewire_worker.backend.adapters import AdapterRows, AdapterSlots
from pagewire_worker.backend.backend import ModelBackend, StepBatch
from pagewire_worker.backend.expert_counts import CountsExperts, ExpertCounts, no_expert_counts
from pagewire_worker.backend.head import ClassificationHead
from pagewire_worker.backend.sampled_tokens import SampledTokens
from pagewire_worker.backend.source import LoadedReplicaModel, Uncaptured
from pagewire_worker.backend.state_tap import StateTap, TapsStates, no_states
from pagewire_worker.kv.kv_cache import CacheShape, KvCache
from pagewire_worker.kv.layer_watch import LayerWatch
from pagewire_worker.parallel.messages import (
    RankCommand,
    adapter_arrays,
    encode,
    encode_batch,
)
from pagewire_worker.parallel.rank_group import RankGroup
from pagewire_worker.parallel.rank_model import RankModel, as_bits
from pagewire_worker.sampling.sampler import likeliest


class GroupBackend:
    """Rank 0's model, which is the last stage or a part of it, and the other ranks' with it.

    Args:
        kernel_set: Names of the implementations in use, in all stages.
        num_tokens: Tokens of the whole vocabulary.
        has_slices: Whether sums have the same bits over any number of ranks.
    """

    def __init__(
        self,
        model: ModelBackend,
        group: RankGroup,
        kernel_set: str,
        num_tokens: int,
        *,
        has_slices: bool = False,
    ) -> None:
        self._has_slices = has_slices
        self._model = model
        self._group = group
        self._topology = group.collectives.topology
        self._kernel_set = kernel_set
        self._rank = RankModel(model, group.collectives, num_tokens)
        model.kv_cache.on_copy = self._copy_elsewhere

    @property
    def kv_cache(self) -> KvCache:
        """This rank's part of the blocks."""
        return self._model.kv_cache

    @property
    def kernel_set(self) -> str:
        """Names of the implementations in use.

        Sums over another number of ranks have other bits, and those over whole experts, unless all
        of them add up the same slices; stages change none.
        """
        size = self._topology.tp_size
        if size == 1 or self._has_slices:
            return self._kernel_set
        experts = ",whole-experts" if self._topology.has_whole_experts else ""
        return f"{self._kernel_set},tp={size}:{self._group.collectives.name}{experts}"

    @property
    def is_exact(self) -> bool:
        """Whether outputs do not depend on the batch: sums over ranks have one order."""
        return self._model.is_exact

    @property
    def embedding_size(self) -> int:
        """Length of a hidden state."""
        return self._model.embedding_size

    def forward(self, batch: StepBatch) -> Tensor:
        """Run one step and return the hidden states, [outputs, hidden]. Raises RankLostError."""
        self._group.send(encode_batch(batch, self.kv_cache.block_size))
        with self._group.together("a step"):
            hidden = self._rank.forward(batch)
            self._group.collectives.check()
        return hidden

    def logits(self, hidden: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        """Return logits [rows, vocab] in float32. Raises RankLostError."""
        if self._topology.tp_size > 1:
            arrays = [as_bits(hidden), *adapter_arrays(adapters)]
            self._group.send(encode(RankCommand.LOGITS, arrays))
        with self._group.together("a step"):
            return self._rank.logits(hidden, adapters)

    def greedy(self, hidden: Tensor, adapters: AdapterRows | None = None) -> SampledTokens:
        """Return the most likely token per row of [rows, hidden], the lowest id of equal ones."""
        if self._topology.tp_size == 1:
            return self._model.greedy(hidden, adapters)
        return likeliest(self.logits(hidden, adapters))

    def tap(self, layers: Sequence[int]) -> StateTap:
        """Return a tap of the states that come into `layers`, the same in all ranks."""
        if not isinstance(self._model, TapsStates):
            raise no_states(self.kernel_set)
        # A tap changes how a step is cut into calls, so all ranks have it.
        self._group.collective_rpc("tap", kwargs={"layers": list(layers)})
        return self._model.tap(layers)

    def count_experts(self) -> ExpertCounts:
        """Count the tokens of each expert from now on; ranks choose the same ones."""
        if not isinstance(self._model, CountsExperts):
            raise no_expert_counts(self.kernel_set)
        return self._model.count_experts()

    def _copy_elsewhere(self, sources: Tensor, destinations: Tensor) -> None:
        """Let the other ranks copy blocks as this one is about to."""
        pair = [np.asarray(one.numpy(), dtype=np.int64) for one in (sources, destinations)]
        self._group.send(encode(RankCommand.COPY_BLOCKS, pair))


@dataclass(frozen=True, slots=True)
class GroupModel(Uncaptured):
    """Rank 0's weights, and the other ranks' with them."""

    model: LoadedReplicaModel
    group: RankGroup
    num_tokens: int
    has_slices: bool = False
    slots: AdapterSlots | None = None

    @property
    def head(self) -> ClassificationHead | None:
        """Its classification head, which rank 0 computes."""
        return self.model.head

    @property
    def adapters(self) -> AdapterSlots | None:
        """The adapter slots of all ranks."""
        return self.slots

    @property
    def cache_shape(self) -> CacheShape:
        """Shape of this rank's part of the cache per position."""
        return self.model.cache_shape

    def backend(self, kv_cache: KvCache, on_layer: LayerWatch) -> ModelBackend:
        """Return the model over `kv_cache`; the other ranks make caches of as many blocks."""
        own = self.model.backend(kv_cache, on_layer)
        kwargs = {"num_blocks": kv_cache.num_blocks}
        _, *others = self.group.collective_rpc("open_cache", kwargs=kwargs)
        # The name of what only some layers need is that of the model.
        kernel_set = max((own.kernel_set, *others), key=len)
        return GroupBackend(
            own, self.group, kernel_set, self.num_tokens, has_slices=self.has_slices
        )
