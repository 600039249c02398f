"""Loads the parts of a plan, packed for the kernels.

Tensors are read from the mapped file, packed by all threads, and released at once: there is never a
second copy of the weights.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_worker.checkpoint.coded_matrix import CodedMatrix
from pagewire_worker.checkpoint.weights import WeightReader
from pagewire_worker.cpu_kernels import abi
from pagewire_worker.cpu_kernels.code_form import equal_runs
from pagewire_worker.cpu_kernels.input_slices import WHOLE_INPUTS, InputSlices
from pagewire_worker.cpu_kernels.library import TYPES, KernelPool
from pagewire_worker.cpu_kernels.matrix_pieces import matrix_pieces
from pagewire_worker.cpu_kernels.packed_layers import (
    FusedDecoder,
    FusedExperts,
    FusedLatent,
    FusedLayer,
    FusedMlp,
    FusedNorm,
    FusedNormPair,
    Rotary,
)
from pagewire_worker.cpu_kernels.packing import (
    PackedWeights,
    Part,
    Storage,
    WeightArena,
    pack,
)
from pagewire_worker.families.plan import (
    AttentionSpec,
    BranchNorms,
    ExpertsSpec,
    LayerSpec,
    LinearSpec,
    MlpSpec,
    ModelPlan,
    NormSpec,
)
from pagewire_worker.layers.rotary import query_scales, rotary_tables, shared_tables
from pagewire_worker.models.load_parts import (
    RouterTensors,
    in_order,
    load_latent,
    load_router,
    load_sinks,
)

PIECE_BYTES = 256 * 1024**2
"""Bytes that are reserved at once for matrices."""


def load_decoder(
    plan: ModelPlan,
    weights: WeightReader,
    pool: KernelPool,
    dtype: torch.dtype,
    quantization: str,
    num_positions: int,
    slices: InputSlices = WHOLE_INPUTS,
) -> FusedDecoder:
    """Pack a checkpoint. Raises StartupError naming the tensor at fault.

    Args:
        quantization: Type of the matrices: none, int8 or int4. With none, matrices of codes keep
            them, and plain ones are of type `dtype`; int8-output is the same with an output layer
            of int8, where that is plain.
        num_positions: Longest context.
        slices: Of the inputs of the last matrices of attention and MLPs.
    """
    packer = _Packer(
        plan=plan,
        weights=weights,
        pool=pool,
        kinds=_Kinds.of(quantization, dtype),
        slices=slices,
    )
    for name in plan.unused:
        weights.ignore(name)
    embedding = packer.embedding() if plan.reads_embedding else None
    tables = shared_tables(
        [layer.attention.rope for layer in plan.layers],
        lambda rope: Rotary(*rotary_tables(rope, num_positions), query_scales(rope, num_positions)),
    )
    layers = [packer.layer(*one) for one in zip(plan.layers, tables, strict=True)]
    is_last = plan.ends.is_last
    return FusedDecoder(
        plan=plan,
        dtype=dtype,
        embedding=embedding,
        norm=packer.norm(plan.norm) if is_last else None,
        vocabulary=packer.vocabulary(embedding) if is_last else None,
        layers=tuple(layers),
        sum_slices=slices.total,
    )


@dataclass(frozen=True, slots=True)
class _Kinds:
    """Storage kinds of the matrices of layers, of the embedding, of the output layer, and of plain
    values; those of an embedding that is the output layer, too, are the latter's."""

    layers: int
    embedding: int
    output: int
    values: int
    keeps_codes: bool = False

    @classmethod
    def of(cls, quantization: str, dtype: torch.dtype) -> "_Kinds":
        values = TYPES[dtype]
        if quantization == "int8":
            return cls(abi.INT8, abi.INT8, abi.INT8, values)
        if quantization == "int4":
            # Four bits are too few for the logits, which decide the tokens.
            return cls(abi.INT4, abi.INT8, abi.INT8, values)
        output = abi.INT8 if quantization == "int8-output" else values
        return cls(values, values, output, values, keeps_codes=True)


class _Packer:
    def __init__(
        self,
        *,
        plan: ModelPlan,
        weights: WeightReader,
        pool: KernelPool,
        kinds: _Kinds,
        slices: InputSlices,
    ) -> None:
        self._slices = slices
        self._plan = plan
        self._weights = weights
        self._pool = pool
        self._kinds = kinds
        self._arena = WeightArena(PIECE_BYTES)

    def embedding(self) -> PackedWeights:
        is_tied = self._plan.logits.name is None
        kind = self._kinds.output if is_tied else self._kinds.embedding
        return self._vocabulary_matrix(self._plan.embedding, kind)

    def vocabulary(self, embedding: PackedWeights | None) -> PackedWeights | None:
        name = self._plan.logits.name
        return embedding if name is None else self._vocabulary_matrix(name, self._kinds.output)

    def _vocabulary_matrix(self, name: str, kind: int) -> PackedWeights:
        shape = (self._plan.vocab_size, self._plan.hidden_size)
        with self._matrix(f"{name}.weight", shape) as rows:
            part = Part(rows)
            # Rows of the embedding are read one by one.
            parts = [part.in_order() if name == self._plan.embedding else part]
            storage = Storage.of_parts(kind, *shape, parts)
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
        attention = spec.attention
        query_norm, key_norm = (
            None if one is None else self.norm(one, attention.order_of(one.size))
            for one in (attention.query_norm, attention.key_norm)
        )
        if attention.latent is not None:
            low, key_norm = attention.latent.query_norm, self.norm(attention.latent.norm)
            query_norm = None if low is None else self.norm(low)
        order = attention.order_of(attention.qkv.num_outputs)
        return FusedLayer(
            spec=spec,
            attention_norms=self._norm_pair(spec.attention_norms),
            mlp_norms=self._norm_pair(spec.mlp_norms),
            query_norm=query_norm,
            key_norm=key_norm,
            qkv=self._linears(attention.qkv, order, may_split=attention.latent is None),
            output=self._sliced(attention.output),
            mlp=self._experts(spec.mlp)
            if isinstance(spec.mlp, ExpertsSpec)
            else self._mlp(spec.mlp),
            rotary=rotary,
            sinks=load_sinks(attention, self._weights, torch.device("cpu")),
            latent=self._latent(attention),
        )

    def _latent(self, spec: AttentionSpec) -> FusedLatent | None:
        if spec.latent is None:
            return None
        tensors, up = load_latent(spec, self._weights), spec.latent.query_up

        def packed(matrix: Tensor) -> PackedWeights:
            storage = Storage.of(self._kinds.values, *matrix.shape)
            return pack(self._pool, self._arena, storage, [Part(matrix)])

        return FusedLatent(
            query_up=None if up is None else self._linear(up, spec.query_order),
            query=tuple(map(packed, tensors.query)),
            value=tuple(map(packed, tensors.value)),
        )

    def _mlp(self, spec: MlpSpec, *, is_expert: bool = False, is_whole: bool = False) -> FusedMlp:
        gate_size = spec.size if spec.is_gated else None
        up = self._linear(spec.up, gate_size=gate_size, is_expert=is_expert)
        return FusedMlp(spec, up, self._sliced(spec.down, is_expert=is_expert, is_whole=is_whole))

    def _experts(self, spec: ExpertsSpec) -> FusedExperts:
        tensors = load_router(spec.router, self._weights, torch.device("cpu"))
        experts = tuple(
            self._mlp(one, is_expert=True, is_whole=spec.is_spread) for one in spec.experts
        )
        _check_same_storage(experts)
        return FusedExperts(
            spec=spec,
            router=self._router(tensors),
            choice_bias=tensors.choice_bias,
            experts=experts,
            shared=None if spec.shared is None else self._mlp(spec.shared),
        )

    def _router(self, tensors: RouterTensors) -> PackedWeights:
        biases = [] if tensors.bias is None else [Part(tensors.bias)]
        storage = Storage.of(self._kinds.values, *tensors.weight.shape)
        return pack(self._pool, self._arena, storage, [Part(tensors.weight)], biases)

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
        is_expert: bool = False,
    ) -> PackedWeights:
        (packed,) = self._linears(spec, order, gate_size=gate_size, is_expert=is_expert)
        return packed

    def _sliced(
        self, spec: LinearSpec, *, is_expert: bool = False, is_whole: bool = False
    ) -> tuple[PackedWeights, ...]:
        """Pack a matrix in slices of its inputs; the first has the bias.

        Args:
            is_whole: Whether this rank has all of them.
        """
        slices = replace(self._slices, own=self._slices.total) if is_whole else self._slices
        return self._linears(spec, is_expert=is_expert, slices=slices)

    def _linears(
        self,
        spec: LinearSpec,
        order: Sequence[int] | None = None,
        *,
        gate_size: int | None = None,
        is_expert: bool = False,
        may_split: bool = False,
        slices: InputSlices = WHOLE_INPUTS,
    ) -> tuple[PackedWeights, ...]:
        """Pack a matrix: a matrix per slice, and per run of tensors with a form in common if it may
        be split."""
        pieces = matrix_pieces(spec, order, gate_size)
        with ExitStack() as borrowed:

            def parts(end: str, *inputs: int) -> list[Part]:
                stored = [
                    borrowed.enter_context(self._matrix(f"{name}.{end}", (size, *inputs)))
                    for name, size in spec.parts
                ]
                return [piece.part(stored[piece.tensor]) for piece in pieces]

            weights = parts("weight", spec.num_inputs)
            if is_expert:
                # All experts of a layer read the same rows, which have one order.
                weights = [one.in_order() for one in weights]
            biases = parts("bias") if spec.has_bias else []
            runs = [slice(0, len(weights))]
            if may_split:
                runs = equal_runs([one.rows for one in weights])
            return tuple(
                self._pack(one.weights, one.biases)
                for run in runs
                for one in slices.of(spec, _from_zero(weights[run]), _from_zero(biases[run]))
            )

    def _pack(self, weights: Sequence[Part], biases: Sequence[Part]) -> PackedWeights:
        num_inputs = weights[0].num_inputs
        num_outputs = sum(one.num_rows for one in weights)
        storage = Storage.of_parts(self._kinds.layers, num_outputs, num_inputs, weights)
        return pack(self._pool, self._arena, storage, weights, biases)

    def _matrix(
        self, name: str, shape: tuple[int, ...]
    ) -> AbstractContextManager[Tensor | CodedMatrix]:
        """Yield one tensor; codes where the checkpoint has them and they stay."""
        if self._kinds.keeps_codes:
            return self._weights.borrow_matrix(name, shape)
        return self._weights.borrow(name, shape)


def _from_zero(parts: Sequence[Part]) -> list[Part]:
    """Return parts whose first panel is that of a matrix of their own."""
    return [replace(one, first_panel=one.first_panel - parts[0].first_panel) for one in parts]


def _check_same_storage(experts: Sequence[FusedMlp]) -> None:
    first = experts[0]
    for expert in experts:
        for spec, found, wanted in (
            (expert.spec.up, [expert.up], [first.up]),
            (expert.spec.down, expert.down, first.down),
        ):
            if [one.storage for one in found] != [one.storage for one in wanted]:
                name = spec.parts[0][0]
                raise StartupError(
                    f"tensor {name} is stored in another way than that of the first expert; "
                    "--attention-backend triton and --cpu-backend torch take both",
                    field="model",
                )
