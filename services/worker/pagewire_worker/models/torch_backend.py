"""The model in plain torch operations, on any device: the reference for all other backends."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from torch import Tensor

from pagewire_worker.backend.adapters import AdapterRows, AdaptsLogits
from pagewire_worker.backend.attention import AttentionBackend, AttentionKind, StepAttention
from pagewire_worker.backend.backend import StepBatch
from pagewire_worker.backend.expert_counts import CountsExperts, ExpertCounts, no_expert_counts
from pagewire_worker.backend.sampled_tokens import SampledTokens
from pagewire_worker.backend.state_tap import StateTap, TapsStates, no_states
from pagewire_worker.checkpoint.dtypes import CACHE_DTYPES
from pagewire_worker.families.plan import ModelPlan
from pagewire_worker.kv.kv_cache import KvCache, LayerCache
from pagewire_worker.sampling.sampler import likeliest


class DecoderModel(Protocol):
    """A decoder with its weights; see Decoder for the methods."""

    @property
    def plan(self) -> ModelPlan:
        """The parts of the model."""
        ...

    @property
    def name(self) -> str:
        """Name of the implementation, part of the numerics fingerprint."""
        ...

    @property
    def is_batch_invariant(self) -> bool:
        """Whether rows are independent, apart from linear layers and attention."""
        ...

    def forward(
        self,
        batch: StepBatch,
        caches: Sequence[LayerCache],
        attends: Sequence[StepAttention],
        on_layer: Callable[[], None],
    ) -> Tensor:
        """Run one flat batch."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits [rows, vocab] in float32."""
        ...

    def narrow_logits(self, hidden: Tensor) -> Tensor:
        """Return logits [rows, vocab] in the type of the model."""
        ...


def by_layer(
    plan: ModelPlan, cache: KvCache, prepare: Callable[[AttentionKind, int], StepAttention]
) -> list[StepAttention]:
    """Return the attention of each layer, prepared once for each kind in each cache group."""
    prepared: dict[tuple[AttentionKind, int], StepAttention] = {}
    attends = []
    for kind, layer in zip(plan.kinds, cache.layers, strict=True):
        key = kind, layer.group
        if key not in prepared:
            prepared[key] = prepare(*key)
        attends.append(prepared[key])
    return attends


class TorchBackend:
    """Runs a Decoder eagerly.

    Args:
        attentions: Attention of each kind that the layers have.
        linear_name: Name of the linear implementation the decoder was built with.
        on_layer: Called after each layer, to report progress.
        is_exact: Whether decoder, attention and linear layers are all batch invariant.
    """

    def __init__(
        self,
        *,
        model: DecoderModel,
        kv_cache: KvCache,
        attentions: Mapping[AttentionKind, AttentionBackend],
        linear_name: str,
        on_layer: Callable[[], None],
        is_exact: bool = False,
    ) -> None:
        self._model = model
        self._kv_cache = kv_cache
        self._attentions = attentions
        self._linear_name = linear_name
        self._on_layer = on_layer
        self._is_exact = is_exact

    @property
    def kv_cache(self) -> KvCache:
        """The blocks that the model reads and writes."""
        return self._kv_cache

    @property
    def kernel_set(self) -> str:
        """Names of the implementations in use."""
        attention = "+".join(sorted({one.name for one in self._attentions.values()}))
        names = f"{self._model.name},attention={attention},linear={self._linear_name}"
        # Named for narrow types only; otherwise the cache has the type of the model.
        stored = self._kv_cache.layers[0].key.dtype
        is_scaled = self._kv_cache.layers[0].scales is not None
        kind = str(stored).removeprefix("torch.") + "-scaled" * is_scaled
        return f"{names},kv={kind}" if stored in CACHE_DTYPES.values() else names

    @property
    def is_exact(self) -> bool:
        """Whether outputs do not depend on the batch: torch does not promise it."""
        return self._is_exact

    @property
    def embedding_size(self) -> int:
        """Length of a hidden state."""
        return self._model.plan.hidden_size

    def forward(self, batch: StepBatch) -> Tensor:
        """Run one step and return the hidden states after the last norm, [outputs, hidden]."""
        groups, attentions = batch.groups, self._attentions
        attends = by_layer(
            self._model.plan,
            self._kv_cache,
            lambda kind, group: attentions[kind].prepare(groups[group].attention),
        )
        return self._model.forward(batch, self._kv_cache.layers, attends, self._on_layer)

    def count_experts(self) -> ExpertCounts:
        """Count the tokens of each expert from now on. Raises StartupError if it cannot."""
        if not isinstance(self._model, CountsExperts):
            raise no_expert_counts(self.kernel_set)
        return self._model.count_experts()

    def tap(self, layers: Sequence[int]) -> StateTap:
        """Return a tap of the states that come into `layers`. Raises StartupError if it cannot."""
        if not isinstance(self._model, TapsStates):
            raise no_states(self.kernel_set)
        return self._model.tap(layers)

    def greedy(self, hidden: Tensor, adapters: AdapterRows | None = None) -> SampledTokens:
        """Return the most likely token per row of [rows, hidden], the lowest id of equal ones."""
        return likeliest(self.logits(hidden, adapters))

    def logits(self, hidden: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        """Return logits [rows, vocab] in float32 for hidden states [rows, hidden]."""
        self._adapt_logits(adapters)
        return self._model.logits(hidden)

    def narrow_logits(self, hidden: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        """Return the logits in the type of the model."""
        self._adapt_logits(adapters)
        return self._model.narrow_logits(hidden)

    def _adapt_logits(self, adapters: AdapterRows | None) -> None:
        if isinstance(self._model, AdaptsLogits):
            self._model.adapt_logits(adapters)
