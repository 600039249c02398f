"""A decoder whose linear layers add the adapters of a step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from pagewire_worker.backend.adapters import AdapterRows
from pagewire_worker.backend.attention import StepAttention
from pagewire_worker.backend.backend import StepBatch
from pagewire_worker.backend.expert_counts import CountsExperts, ExpertCounts, no_expert_counts
from pagewire_worker.backend.state_tap import StateTap, TapsStates, no_states
from pagewire_worker.families.plan import ModelPlan
from pagewire_worker.kv.kv_cache import LayerCache
from pagewire_worker.models.adapter_tensors import StepAdapters
from pagewire_worker.models.torch_backend import DecoderModel


@dataclass(frozen=True, slots=True)
class AdaptedDecoder:
    """Gives the adapters of each step to the layers of `inner`, which read `step`."""

    inner: DecoderModel
    step: StepAdapters

    @property
    def plan(self) -> ModelPlan:
        """The parts of the model."""
        return self.inner.plan

    @property
    def name(self) -> str:
        """Name of the implementation."""
        return self.inner.name

    @property
    def is_batch_invariant(self) -> bool:
        """Whether rows are independent."""
        return self.inner.is_batch_invariant

    def forward(
        self,
        batch: StepBatch,
        caches: Sequence[LayerCache],
        attends: Sequence[StepAttention],
        on_layer: Callable[[], None],
    ) -> Tensor:
        """Run one flat batch."""
        self.step.begin(batch.adapters)
        return self.inner.forward(batch, caches, attends, on_layer)

    def adapt_logits(self, rows: AdapterRows | None) -> None:
        """Set the adapters of the rows whose logits are computed next; None for none."""
        self.step.begin_logits(rows)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits [rows, vocab] in float32."""
        return self.inner.logits(hidden)

    def narrow_logits(self, hidden: Tensor) -> Tensor:
        """Return logits [rows, vocab] in the type of the model."""
        return self.inner.narrow_logits(hidden)

    def count_experts(self) -> ExpertCounts:
        """Count the tokens of each expert from now on. Raises StartupError if it cannot."""
        if not isinstance(self.inner, CountsExperts):
            raise no_expert_counts(self.name)
        return self.inner.count_experts()

    def tap(self, layers: Sequence[int]) -> StateTap:
        """Return a tap of the states that come into `layers`. Raises StartupError if it cannot."""
        if not isinstance(self.inner, TapsStates):
            raise no_states(self.name)
        return self.inner.tap(layers)
