"""The packed parts of a decoder, as plain data."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pagewire_worker.cpu_kernels import abi
from pagewire_worker.cpu_kernels.library import pointer
from pagewire_worker.cpu_kernels.packing import PackedWeights
from pagewire_worker.families.plan import (
    ExpertsSpec,
    LayerSpec,
    MlpSpec,
    ModelPlan,
    NormSpec,
)


class Rotary(NamedTuple):
    """Cosines and sines, float32 [positions, head_dim / 2] each, and factors of queries.

    `query_scales` is float32 [positions]; None for 1.
    """

    cosines: Tensor
    sines: Tensor
    query_scales: Tensor | None


@dataclass(frozen=True, slots=True)
class FusedNorm:
    """A norm; its tensors are float32 and have their offset already."""

    spec: NormSpec
    weight: Tensor
    bias: Tensor | None

    def structure(self) -> abi.NormArgs:
        """Return the structure for the kernels; valid while this object lives."""
        spec = self.spec
        tensors = pointer(self.weight), pointer(self.bias)
        return abi.NormArgs(*tensors, spec.epsilon, spec.size, spec.is_centered)


@dataclass(frozen=True, slots=True)
class FusedNormPair:
    """The norms before and behind a part of a layer."""

    before: FusedNorm | None
    after: FusedNorm | None


@dataclass(frozen=True, slots=True)
class FusedMlp:
    """Weights of an MLP.

    Attributes:
        up: With a gate, panels of gate and up alternate.
        down: Slices of its inputs, side by side; a single one where sums are not sliced.
    """

    spec: MlpSpec
    up: PackedWeights
    down: tuple[PackedWeights, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedExperts:
    """Weights of a mixture of experts.

    Attributes:
        router: Of the model's type, whatever the experts have.
        choice_bias: float32 [experts], or None.
        experts: Those of `spec`; matrices of the same place have one storage.
    """

    spec: ExpertsSpec
    router: PackedWeights
    choice_bias: Tensor | None
    experts: tuple[FusedMlp, ...]
    shared: FusedMlp | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedLatent:
    """Matrices of latent attention beside qkv and output; see LatentTensors.

    Attributes:
        query, value: Of each head; of the model's type, whatever others have.
    """

    query_up: PackedWeights | None
    query: tuple[PackedWeights, ...]
    value: tuple[PackedWeights, ...]

    @property
    def linears(self) -> tuple[PackedWeights, ...]:
        """All of them."""
        own = () if self.query_up is None else (self.query_up,)
        return *own, *self.query, *self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedLayer:
    """Weights of one layer.

    Attributes:
        query_norm, key_norm: With a latent, of what queries are made of, and of the latent.
        qkv: One matrix, or the parts whose codes have different forms, side by side.
        output: Slices of its inputs, as of FusedMlp.down.
        rotary: None for no rotation.
        sinks: Of attention, float32 [heads]; None for none.
    """

    spec: LayerSpec
    attention_norms: FusedNormPair
    mlp_norms: FusedNormPair
    query_norm: FusedNorm | None
    key_norm: FusedNorm | None
    qkv: tuple[PackedWeights, ...]
    output: tuple[PackedWeights, ...]
    mlp: FusedMlp | FusedExperts
    rotary: Rotary | None
    sinks: Tensor | None
    latent: FusedLatent | None = None

    @property
    def linears(self) -> tuple[PackedWeights, ...]:
        """All matrices of which every token is an input."""
        own = (*self.qkv, *self.output, *(self.latent.linears if self.latent else ()))
        if isinstance(self.mlp, FusedMlp):
            return *own, self.mlp.up, *self.mlp.down
        shared = self.mlp.shared
        return *own, self.mlp.router, *((shared.up, *shared.down) if shared else ())

    @property
    def expert_linears(self) -> tuple[PackedWeights, ...]:
        """The matrices of one expert; none where a layer has no experts."""
        if isinstance(self.mlp, FusedMlp):
            return ()
        return self.mlp.experts[0].up, *self.mlp.experts[0].down

    @property
    def num_slices(self) -> int:
        """Slices of the inputs of each last matrix that are here."""
        return len(self.output)

    @property
    def num_expert_slices(self) -> int:
        """The same of the experts; 0 where a layer has no experts."""
        return 0 if isinstance(self.mlp, FusedMlp) else len(self.mlp.experts[0].down)

    @property
    def is_spread(self) -> bool:
        """Whether other ranks have other experts."""
        return isinstance(self.mlp, FusedExperts) and self.mlp.spec.is_spread


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedDecoder:
    """Weights of a model.

    Attributes:
        sum_slices: Slices of the inputs of each last matrix, in all ranks; 1 for whole ones.
        embedding: None for a stage that does not read it.
        vocabulary, norm: None for a stage that is not the last. The first is the embedding if the
            model ties them.
    """

    plan: ModelPlan
    dtype: torch.dtype
    embedding: PackedWeights | None
    vocabulary: PackedWeights | None
    norm: FusedNorm | None
    layers: tuple[FusedLayer, ...]
    sum_slices: int = 1
