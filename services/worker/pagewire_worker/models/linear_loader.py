"""Loads the linear layers of a plan, for decoders that compute with torch's tensors.

Matrices that a checkpoint has as codes stay codes where the layers multiply with them; others
become values of the model's type.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from pagewire_worker.backend.stage_ends import StageEnds
from pagewire_worker.checkpoint.coded_matrix import CodedMatrix, merged
from pagewire_worker.checkpoint.weights import Shape, WeightReader, stacked
from pagewire_worker.families.plan import (
    AttentionSpec,
    LinearSpec,
    MlpSpec,
    ModelPlan,
    RouterSpec,
)
from pagewire_worker.layers.linear import Linear, LinearFactory, LinearKind
from pagewire_worker.models.adapter_tensors import TensorAdapterStore
from pagewire_worker.models.load_parts import (
    RouterTensors,
    in_order,
    load_router,
    load_sinks,
)
from pagewire_worker.models.rank_parts import WHOLE, RankLayers
from pagewire_worker.triton_kernels.packed_codes import PackedCodes

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MlpLinears:
    """The matrices of an MLP.

    Attributes:
        up: Gates, if there are any, then the values that they multiply.
        down: From the product to the hidden state.
    """

    up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class AttentionLinears:
    """The matrices of attention; matrices that read the same input are merged into one.

    Attributes:
        qkv: Queries, keys and values of all heads.
        output: From all heads to the hidden state.
        query_up: As in LatentSpec.
    """

    qkv: Linear
    output: Linear
    query_up: Linear | None = None


@dataclass(frozen=True, slots=True)
class StackedLinears:
    """Matrices of one shape, in one tensor.

    Attributes:
        weight: [matrices, outputs, inputs].
        bias: [matrices, outputs] of the same type, or None.
    """

    weight: Tensor
    bias: Tensor | None = None


@dataclass(frozen=True, slots=True)
class StackedCodes:
    """Matrices of one shape whose codes lie in one stack; `bias` as in StackedLinears."""

    codes: PackedCodes
    bias: Tensor | None = None


class LinearLoader:
    """Loads the linear layers of one model, and notes which of them keep codes.

    Args:
        weights: The checkpoint.
        kind: Makes the layers.
        device, dtype: Of values, biases and inputs.
        adapters: Adapters of the layers; None for none.
        ranks: Divides the layers between ranks.
    """

    def __init__(
        self,
        weights: WeightReader,
        kind: LinearKind,
        device: torch.device,
        dtype: torch.dtype,
        *,
        adapters: TensorAdapterStore | None = None,
        ranks: RankLayers = WHOLE,
    ) -> None:
        self._adapters = adapters
        self._ranks = ranks
        self._weights = weights
        self._kind = kind
        self._device = device
        self._dtype = dtype
        self._num_coded = 0
        self._as_values: list[str] = []

    @property
    def kind(self) -> LinearKind:
        """The layers that were loaded; their name says whether some keep codes."""
        codes = self._kind.codes
        if codes is None or not self._num_coded:
            return self._kind
        return replace(self._kind, name=f"{self._kind.name}+{codes.name}")

    @property
    def ends(self) -> StageEnds:
        """The neighbours of the stage whose layers these are."""
        return StageEnds(self._ranks.collectives)

    @property
    def dtype(self) -> torch.dtype:
        """Type of values."""
        return self._dtype

    @property
    def adapters(self) -> TensorAdapterStore | None:
        """Adapters of the layers; None for none."""
        return self._adapters

    @property
    def choose_rows(self) -> Callable[[Tensor], None] | None:
        """What an expert that a router chooses calls with its tokens first; None for nothing."""
        return None if self._adapters is None else self._adapters.step.routed.choose

    def load_attention(self, spec: AttentionSpec) -> AttentionLinears:
        """Load the matrices of attention. Raises StartupError naming the tensor at fault."""
        order = spec.order_of(spec.qkv.num_outputs)
        query_up = None if spec.latent is None else spec.latent.query_up
        return AttentionLinears(
            qkv=self._load_linear(spec.qkv, order),
            output=self._ranks.summed(self._load_linear(spec.output)),
            query_up=None if query_up is None else self._load_linear(query_up, spec.query_order),
        )

    def load_mlp(self, spec: MlpSpec, *, is_expert: bool = False) -> MlpLinears:
        """Load the matrices of an MLP. Raises StartupError naming the tensor at fault.

        Args:
            is_expert: Whether `sum_of_ranks` sums it, with others.
        """
        up, down = self._load_linear(spec.up), self._load_linear(spec.down)
        return MlpLinears(up, down if is_expert else self._ranks.summed(down))

    @property
    def sum_of_ranks(self) -> Callable[[Tensor], Tensor]:
        """What sums the outputs of experts over the ranks."""
        return self._ranks.collectives.all_reduce

    def embedding(self, rows: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the embedding, [tokens] -> [tokens, hidden], of which `rows` are this rank's."""

        def own(token_ids: Tensor) -> Tensor:
            return functional.embedding(token_ids, rows)

        adapted = own if self._adapters is None else self._adapters.wrap_embedding(own)
        return self._ranks.embedding(adapted, len(rows))

    def load_sinks(self, spec: AttentionSpec) -> Tensor | None:
        """Load the sinks of attention, if it has any. Raises StartupError naming the tensor."""
        return load_sinks(spec, self._weights, self._device)

    def load_stacked(self, specs: Sequence[LinearSpec]) -> StackedLinears | StackedCodes:
        """Load matrices of one shape. Raises StartupError naming the tensor at fault."""
        bias = None
        if specs[0].has_bias:
            biases = [(f"{name}.bias", (rows,)) for one in specs for name, rows in one.parts]
            bias = self._weights.take_stacked(biases).view(len(specs), -1)
        codes = self._kind.codes
        if codes is not None and codes.stack is not None:
            stack = codes.stack(map(self._merged, specs), len(specs), self._device)
            if stack is not None:
                self._num_coded += len(specs)
                return StackedCodes(stack, bias)
        shapes = [shape for one in specs for shape in _shapes(one)]
        self._as_values += [", ".join(name for name, _ in _shapes(one)) for one in specs]
        weight = self._weights.take_stacked(shapes).view(len(specs), -1, specs[0].num_inputs)
        return StackedLinears(weight, bias)

    def _merged(self, spec: LinearSpec) -> CodedMatrix | None:
        """Return a matrix of codes that does not lie in the files any more; None for values."""
        with ExitStack() as borrowed:
            parts = [
                borrowed.enter_context(self._weights.borrow_matrix(name, shape))
                for name, shape in _shapes(spec)
            ]
            return merged(parts)

    def load_router(self, spec: RouterSpec) -> RouterTensors:
        """Load the tensors of a router. Raises StartupError naming the tensor at fault."""
        return load_router(spec, self._weights, self._device)

    def load_output(self, plan: ModelPlan, embedding: Tensor | None) -> Linear:
        """Load the matrix that gives the logits: `embedding` if a model ties them."""
        base = self._load_output(plan, embedding)
        return base if self._adapters is None else self._adapters.wrap_output(base)

    def _load_output(self, plan: ModelPlan, embedding: Tensor | None) -> Linear:
        make, name = self._kind.output, plan.logits.name
        if name is None:
            assert embedding is not None, "the last stage of a model that ties them reads it"
            return make(embedding, None)
        shapes = [(f"{name}.weight", (plan.vocab_size, plan.hidden_size))]
        codes = self._kind.codes
        if codes is None or not codes.has_output:
            return make(self._weights.take_stacked(shapes), None)
        return self._load_matrix(shapes, None, make)

    def log(self) -> None:
        """Say how many matrices keep the codes of a quantized checkpoint."""
        first = f", the first: {self._as_values[0]}" if self._as_values else ""
        _logger.info(
            "%d matrices keep the codes of the checkpoint, %d are values of %s%s",
            self._num_coded,
            len(self._as_values),
            str(self._dtype).removeprefix("torch."),
            first,
        )

    def _load_linear(self, spec: LinearSpec, order: Sequence[int] | None = None) -> Linear:
        """Load one layer, with its adapters.

        Args:
            order: Published row of each output; None for the published order.
        """
        base = self._load_base(spec, order)
        return base if self._adapters is None else self._adapters.wrap(spec, base)

    def _load_base(self, spec: LinearSpec, order: Sequence[int] | None) -> Linear:
        bias = None
        if spec.has_bias:
            biases = [(f"{name}.bias", (size,)) for name, size in spec.parts]
            bias = in_order(self._weights.take_stacked(biases), order)
        shapes = _shapes(spec)
        if self._kind.codes is None:
            return self._kind.layer(in_order(self._weights.take_stacked(shapes), order), bias)
        return self._load_matrix(shapes, bias, self._kind.layer, order)

    def _load_matrix(
        self,
        shapes: Sequence[tuple[str, Shape]],
        bias: Tensor | None,
        make_of_values: LinearFactory,
        order: Sequence[int] | None = None,
    ) -> Linear:
        with ExitStack() as borrowed:
            parts = {
                name: borrowed.enter_context(self._weights.borrow_matrix(name, shape))
                for name, shape in shapes
            }
            found = self._of_codes(list(parts.values()), bias, order)
            if found is not None:
                self._num_coded += 1
                return found
            self._as_values.append(", ".join(parts))

            def fill(rows: Tensor, name: str, shape: Shape) -> None:
                part = parts[name]
                rows.copy_(part.dense() if isinstance(part, CodedMatrix) else part)

            weight = stacked(shapes, self._device, self._dtype, fill)
        return make_of_values(in_order(weight, order), bias)

    def _of_codes(
        self,
        parts: Sequence[CodedMatrix | Tensor],
        bias: Tensor | None,
        order: Sequence[int] | None,
    ) -> Linear | None:
        matrix = merged(parts)
        if matrix is None or self._kind.codes is None:
            return None
        if order is not None:
            matrix = matrix.select(lambda rows: in_order(rows, order))
        return self._kind.codes.layer(matrix, bias, self._device, self._dtype)


def _shapes(spec: LinearSpec) -> list[tuple[str, Shape]]:
    return [(f"{name}.weight", (size, spec.num_inputs)) for name, size in spec.parts]
