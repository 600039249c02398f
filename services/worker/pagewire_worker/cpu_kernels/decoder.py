"""Loads the parts of a plan, packed for the kernels.

Tensors are read from the mapped file, packed by all threads, and released at once: there is never a
second copy of the weights.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from pagewire_worker.checkpoint.coded_matrix import CodedMatrix
from pagewire_worker.checkpoint.weights import WeightReader
from pagewire_worker.cpu_kernels import abi
from pagewire_worker.cpu_kernels.library import TYPES, KernelPool, pointer
from pagewire_worker.cpu_kernels.packing import (
    PANEL,
    PackedWeights,
    Part,
    Storage,
    WeightArena,
    pack,
)
from pagewire_worker.families.plan import (
    BranchNorms,
    LayerSpec,
    LinearSpec,
    ModelPlan,
    NormSpec,
)
from pagewire_worker.layers.rotary import query_scales, rotary_tables, shared_tables
from pagewire_worker.models.load_parts import in_order

PIECE_BYTES = 256 * 1024**2
"""Bytes that are reserved at once for matrices."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedLayer:
    """Weights of one layer.

    Attributes:
        up: With a gate, panels of gate and up alternate.
        rotary: None for no rotation.
    """

    spec: LayerSpec
    attention_norms: FusedNormPair
    mlp_norms: FusedNormPair
    query_norm: FusedNorm | None
    key_norm: FusedNorm | None
    qkv: PackedWeights
    output: PackedWeights
    up: PackedWeights
    down: PackedWeights
    rotary: Rotary | None

    @property
    def linears(self) -> tuple[PackedWeights, ...]:
        """All matrices."""
        return self.qkv, self.output, self.up, self.down


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedDecoder:
    """Weights of a model.

    Attributes:
        embedding, vocabulary: The same matrix if the model ties them.
    """

    plan: ModelPlan
    dtype: torch.dtype
    embedding: PackedWeights
    vocabulary: PackedWeights
    norm: FusedNorm
    layers: tuple[FusedLayer, ...]


def load_decoder(
    plan: ModelPlan,
    weights: WeightReader,
    pool: KernelPool,
    dtype: torch.dtype,
    quantization: str,
    num_positions: int,
) -> FusedDecoder:
    """Pack a checkpoint. Raises StartupError naming the tensor at fault.

    Args:
        quantization: Type of the matrices: none, int8 or int4. With none, matrices of codes keep
            them, and plain ones are of type `dtype`.
        num_positions: Longest context.
    """
    packer = _Packer(plan, weights, pool, _Kinds.of(quantization, dtype))
    for name in plan.unused:
        weights.ignore(name)
    embedding = packer.vocabulary_matrix(plan.embedding)
    tables = shared_tables(
        [layer.attention.rope for layer in plan.layers],
        lambda rope: Rotary(*rotary_tables(rope, num_positions), query_scales(rope, num_positions)),
    )
    layers = [packer.layer(*one) for one in zip(plan.layers, tables, strict=True)]
    norm = packer.norm(plan.norm)
    output = plan.logits.name
    vocabulary = embedding if output is None else packer.vocabulary_matrix(output)
    return FusedDecoder(
        plan=plan,
        dtype=dtype,
        embedding=embedding,
        vocabulary=vocabulary,
        norm=norm,
        layers=tuple(layers),
    )


@dataclass(frozen=True, slots=True)
class _Kinds:
    """Storage kinds of the matrices of layers, and of the vocabulary."""

    layers: int
    vocabulary: int
    keeps_codes: bool = False

    @classmethod
    def of(cls, quantization: str, dtype: torch.dtype) -> "_Kinds":
        if quantization == "int8":
            return cls(abi.INT8, abi.INT8)
        if quantization == "int4":
            # Four bits are too few for the logits, which decide the tokens.
            return cls(abi.INT4, abi.INT8)
        return cls(TYPES[dtype], TYPES[dtype], keeps_codes=True)


class _Packer:
    def __init__(
        self, plan: ModelPlan, weights: WeightReader, pool: KernelPool, kinds: _Kinds
    ) -> None:
        self._plan = plan
        self._weights = weights
        self._pool = pool
        self._kinds = kinds
        self._arena = WeightArena(PIECE_BYTES)

    def vocabulary_matrix(self, name: str) -> PackedWeights:
        shape = (self._plan.vocab_size, self._plan.hidden_size)
        with self._matrix(f"{name}.weight", shape) as rows:
            parts = [Part(rows)]
            storage = Storage.of_parts(self._kinds.vocabulary, *shape, parts)
            return pack(self._pool, self._arena, storage, parts)

    def norm(self, spec: NormSpec, order: Sequence[int] | None = None) -> FusedNorm:
        shape, bias = (spec.size,), None
        with self._weights.borrow(f"{spec.name}.weight", shape) as stored:
            weight = in_order(stored, order).float() + spec.offset
        if spec.is_centered:
            with self._weights.borrow(f"{spec.name}.bias", shape) as stored:
                bias = stored.float().clone()
        return FusedNorm(spec, weight, bias)

    def layer(self, spec: LayerSpec, rotary: Rotary | None) -> FusedLayer:
        attention, mlp = spec.attention, spec.mlp
        query_norm, key_norm = (
            None if one is None else self.norm(one, attention.order_of(one.size))
            for one in (attention.query_norm, attention.key_norm)
        )
        order = attention.order_of(attention.qkv.num_outputs)
        return FusedLayer(
            spec=spec,
            attention_norms=self._norm_pair(spec.attention_norms),
            mlp_norms=self._norm_pair(spec.mlp_norms),
            query_norm=query_norm,
            key_norm=key_norm,
            qkv=self._linear(attention.qkv, order),
            output=self._linear(attention.output),
            up=self._linear(mlp.up, gate_size=mlp.size if mlp.is_gated else None),
            down=self._linear(mlp.down),
            rotary=rotary,
        )

    def _norm_pair(self, norms: BranchNorms) -> FusedNormPair:
        before, after = (
            None if one is None else self.norm(one) for one in (norms.before, norms.after)
        )
        return FusedNormPair(before, after)

    def _linear(
        self,
        spec: LinearSpec,
        order: Sequence[int] | None = None,
        *,
        gate_size: int | None = None,
    ) -> PackedWeights:
        pieces = _pieces(spec, order, gate_size)
        with ExitStack() as borrowed:

            def parts(end: str, *inputs: int) -> list[Part]:
                stored = [
                    borrowed.enter_context(self._matrix(f"{name}.{end}", (size, *inputs)))
                    for name, size in spec.parts
                ]
                return [piece.part(stored[piece.tensor]) for piece in pieces]

            weights = parts("weight", spec.num_inputs)
            biases = parts("bias") if spec.has_bias else []
            storage = Storage.of_parts(
                self._kinds.layers, spec.num_outputs, spec.num_inputs, weights
            )
            return pack(self._pool, self._arena, storage, weights, biases)

    def _matrix(
        self, name: str, shape: tuple[int, ...]
    ) -> AbstractContextManager[Tensor | CodedMatrix]:
        """Yield one tensor; codes where the checkpoint has them and they stay."""
        if self._kinds.keeps_codes:
            return self._weights.borrow_matrix(name, shape)
        return self._weights.borrow(name, shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """Rows of a tensor of the checkpoint, and the panels that they fill in a merged matrix.

    Attributes:
        tensor: Number of the tensor.
        order: The rows within these, in the order of the panels; None for theirs.
    """

    tensor: int
    rows: slice
    order: Sequence[int] | None
    first_panel: int
    panel_step: int

    def part(self, stored: Tensor | CodedMatrix) -> Part:
        place = (self.first_panel, self.panel_step)
        if isinstance(stored, CodedMatrix):
            return Part(stored.select(lambda one: in_order(one[self.rows], self.order)), *place)
        return Part(in_order(stored[self.rows], self.order), *place)


def _pieces(spec: LinearSpec, order: Sequence[int] | None, gate_size: int | None) -> list[_Piece]:
    """Cut the tensors of a matrix at the end of its gates, if there are any."""
    pieces, begin = [], 0
    for number, (_, size) in enumerate(spec.parts):
        end = begin + size
        cuts = [begin, gate_size, end] if gate_size and begin < gate_size < end else [begin, end]
        for first, last in pairwise(cuts):
            moved = None if order is None else [row - first for row in order[first:last]]
            is_up = gate_size is not None and first >= gate_size
            half = first - gate_size if gate_size is not None and is_up else first
            pieces.append(
                _Piece(
                    tensor=number,
                    rows=slice(first - begin, last - begin),
                    order=moved,
                    first_panel=half // PANEL if gate_size is None else half // PANEL * 2 + is_up,
                    panel_step=1 if gate_size is None else 2,
                )
            )
        begin = end
    return pieces
