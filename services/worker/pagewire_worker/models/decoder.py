"""The decoder in torch: it computes the parts that a plan lists.

It sees tensors only; the model runner handles requests and plans.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pagewire_worker.backend.attention import AttentionKind, StepAttention
from pagewire_worker.backend.backend import StepBatch
from pagewire_worker.backend.expert_counts import ExpertCounts
from pagewire_worker.backend.stage_ends import WHOLE_MODEL, StageEnds
from pagewire_worker.backend.state_tap import StateTap
from pagewire_worker.checkpoint.weights import WeightReader
from pagewire_worker.families.plan import (
    AttentionSpec,
    BranchNorms,
    ExpertsSpec,
    LayerSpec,
    MlpSpec,
    ModelPlan,
    NormSpec,
)
from pagewire_worker.kv.kv_cache import LayerCache
from pagewire_worker.layers.activation import ACTIVATIONS, gated
from pagewire_worker.layers.linear import Linear
from pagewire_worker.layers.logits import finish_logits
from pagewire_worker.layers.norm import LayerNorm, Norm, RmsNorm
from pagewire_worker.layers.rotary import RotaryTable, Rotation, shared_tables
from pagewire_worker.models.experts import Experts
from pagewire_worker.models.latent_attention import LatentAttention
from pagewire_worker.models.layer_inputs import LayerInputs
from pagewire_worker.models.linear_loader import AttentionLinears, LinearLoader, MlpLinears
from pagewire_worker.models.load_parts import (
    embedding_factor,
    load_embedding,
    load_latent,
    load_norm_tensors,
)


class SelfAttention:
    """Grouped-query attention over a paged cache."""

    __slots__ = ("_key_norm", "_output", "_qkv", "_query_norm", "_sinks", "_spec")

    def __init__(
        self,
        *,
        spec: AttentionSpec,
        linears: AttentionLinears,
        query_norm: Norm | None,
        key_norm: Norm | None,
        sinks: Tensor | None,
    ) -> None:
        self._spec = spec
        self._qkv = linears.qkv
        self._output = linears.output
        self._query_norm = query_norm
        self._key_norm = key_norm
        self._sinks = sinks

    def __call__(self, x: Tensor, inputs: LayerInputs) -> Tensor:
        """Map [tokens, hidden] to [tokens, hidden]; writes keys and values before it reads them."""
        spec, num_tokens = self._spec, x.shape[0]
        heads = self._qkv(x).view(num_tokens, -1, spec.head_dim)
        sizes = (spec.num_heads, spec.num_kv_heads, spec.num_kv_heads)
        query, key, value = heads.split(sizes, dim=1)
        query = _normed(self._query_norm, spec.query_norm, query)
        key = _normed(self._key_norm, spec.key_norm, key)
        if inputs.rotation is not None:
            query, key = inputs.rotation.rotate_queries(query), inputs.rotation.rotate(key)
        inputs.cache.write(inputs.slot_mapping, key, value, inputs.faults)
        attended = inputs.attend(query, inputs.cache, self._sinks)
        return self._output(attended.reshape(num_tokens, -1))


def _normed(norm: Norm | None, spec: NormSpec | None, heads: Tensor) -> Tensor:
    if norm is None or spec is None:
        return heads
    return norm(heads.reshape(len(heads), -1, spec.size)).view(heads.shape)


class Mlp:
    """down(activation(gate(x)) * up(x)), or without a gate down(activation(up(x)))."""

    __slots__ = ("_down", "_spec", "_up")

    def __init__(self, spec: MlpSpec, linears: MlpLinears) -> None:
        self._spec = spec
        self._up = linears.up
        self._down = linears.down

    def __call__(self, x: Tensor) -> Tensor:
        """Map [tokens, hidden] to [tokens, hidden]."""
        up = self._up(x)
        if not self._spec.is_gated:
            return self._down(ACTIVATIONS[self._spec.activation](up))
        return self._down(gated(self._spec, *up.chunk(2, dim=-1)))


@dataclass(frozen=True, slots=True)
class ResidualBranch:
    """A part of a layer with its norms, added to the residual.

    Attributes:
        multiplier: Of the part before it is added.
    """

    before: Norm | None
    after: Norm | None
    multiplier: float

    def __call__(self, hidden: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        """Map [tokens, hidden] to [tokens, hidden]."""
        added = part(hidden if self.before is None else self.before(hidden))
        if self.after is not None:
            added = self.after(added)
        return hidden + (added if self.multiplier == 1.0 else added * self.multiplier)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderLayer:
    """One transformer block.

    Attributes:
        rotary: None for no rotation.
    """

    attention: SelfAttention | LatentAttention
    attention_branch: ResidualBranch
    mlp: Mlp | Experts
    mlp_branch: ResidualBranch
    kind: AttentionKind
    rotary: RotaryTable | None

    def __call__(self, hidden: Tensor, inputs: LayerInputs) -> Tensor:
        """Map [tokens, hidden] to [tokens, hidden]."""
        hidden = self.attention_branch(hidden, lambda x: self.attention(x, inputs))
        return self.mlp_branch(hidden, self.mlp)


class Decoder:
    """Maps token ids to the hidden states of the requested rows, and these to logits.

    Args:
        device, dtype: Of hidden states.
        embed: None for a stage that is not the first.
        norm, output: None for a stage that is not the last.
        ends: The other stages.
    """

    name = "torch"
    is_batch_invariant = False

    def __init__(
        self,
        *,
        plan: ModelPlan,
        device: torch.device,
        dtype: torch.dtype,
        embed: Callable[[Tensor], Tensor] | None,
        layers: Sequence[DecoderLayer],
        norm: Norm | None,
        output: Linear | None,
        ends: StageEnds = WHOLE_MODEL,
    ) -> None:
        self.plan = plan
        self._device = device
        self._dtype = dtype
        self._ends = ends
        self._embed = embed
        self._factor = embedding_factor(plan, dtype)
        self._layers = layers
        self._norm = norm
        self._output = output
        self._tap = StateTap(())

    def forward(
        self,
        batch: StepBatch,
        caches: Sequence[LayerCache],
        attends: Sequence[StepAttention],
        on_layer: Callable[[], None],
    ) -> Tensor:
        """Run one flat batch.

        Args:
            caches: One per layer.
            attends: One per layer, prepared for the sequences of this step.

        Returns:
            Hidden states after the last norm, [outputs, hidden]; none of a stage before the last.
        """
        hidden = self._enter(batch)
        rotations = _rotations([layer.rotary for layer in self._layers], batch.positions)
        groups = batch.groups
        parts = zip(self._layers, caches, attends, rotations, strict=True)
        for index, (layer, cache, attend, rotation) in enumerate(parts):
            if self._tap.wants(index):
                self._tap.put(index, hidden)
            slot_mapping = groups[cache.group].slot_mapping
            inputs = LayerInputs(rotation, slot_mapping, cache, attend, batch.faults)
            hidden = layer(hidden, inputs)
            on_layer()
        return self._leave(hidden, batch)

    def _enter(self, batch: StepBatch) -> Tensor:
        """Return the states that come into the first layer, [tokens, hidden]."""
        if self._embed is None:
            size = (len(batch.token_ids), self.plan.hidden_size)
            hidden = torch.empty(size, dtype=self._dtype, device=self._device)
            self._ends.take(hidden, batch.faults)
            return hidden
        hidden = self._embed(batch.token_ids)
        return hidden if self._factor == 1.0 else hidden * self._factor

    def _leave(self, hidden: Tensor, batch: StepBatch) -> Tensor:
        """Return the result of a step, or pass on what the next stage makes it of."""
        if self._norm is None:
            self._ends.pass_on(hidden, batch.faults)
            return hidden[:0]
        if self._tap.wants(len(self._layers)):
            self._tap.put(len(self._layers), self._norm(hidden))
        return self._norm(hidden.index_select(0, batch.output_rows))

    def tap(self, layers: Sequence[int]) -> StateTap:
        """Return a tap of the states that come into `layers`."""
        self._tap = StateTap(layers)
        return self._tap

    def count_experts(self) -> ExpertCounts:
        """Count the tokens of each expert from now on."""
        counts = ExpertCounts.of(self.plan.expert_sizes, self._device)
        for layer, tokens in counts.tokens.items():
            mlp = self._layers[layer].mlp
            assert isinstance(mlp, Experts)
            mlp.counts = tokens
        return counts

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits [rows, vocab] in float32 for hidden states that `forward` returned."""
        return self.narrow_logits(hidden).float()

    def narrow_logits(self, hidden: Tensor) -> Tensor:
        """Return the logits in the type of the model."""
        assert self._output is not None, "the last stage has the logits"
        return finish_logits(self.plan.logits, self._output(hidden))


def _rotations(tables: Sequence[RotaryTable | None], positions: Tensor) -> list[Rotation | None]:
    """Return the rotation of each layer; layers that share a table share it."""
    made = {id(table): table.at(positions) for table in tables if table is not None}
    return [made.get(id(table)) for table in tables]


def load_decoder(
    plan: ModelPlan,
    weights: WeightReader,
    linears: LinearLoader,
    num_positions: int,
    device: torch.device,
) -> Decoder:
    """Build the decoder from a checkpoint. Raises StartupError naming the tensor at fault."""
    ends, dtype = plan.ends, linears.dtype
    embedding = load_embedding(plan, weights) if plan.reads_embedding else None
    tables = shared_tables(
        [layer.attention.rope for layer in plan.layers],
        lambda rope: RotaryTable(rope, num_positions, device, dtype),
    )
    layers = [
        load_layer(plan, spec, weights, linears, table)
        for spec, table in zip(plan.layers, tables, strict=True)
    ]
    norm = load_norm(plan.norm, weights) if ends.is_last else None
    output = linears.load_output(plan, embedding) if ends.is_last else None
    return Decoder(
        plan=plan,
        device=device,
        dtype=dtype,
        embed=linears.embedding(embedding) if ends.is_first and embedding is not None else None,
        layers=layers,
        norm=norm,
        output=output,
        ends=linears.ends,
    )


def load_layer(
    plan: ModelPlan,
    spec: LayerSpec,
    weights: WeightReader,
    linears: LinearLoader,
    rotary: RotaryTable | None,
) -> DecoderLayer:
    """Load one layer. Raises StartupError naming the tensor at fault."""

    def branch(norms: BranchNorms) -> ResidualBranch:
        before, after = (
            None if one is None else load_norm(one, weights) for one in (norms.before, norms.after)
        )
        return ResidualBranch(before, after, plan.residual_multiplier)

    return DecoderLayer(
        attention=_load_attention(spec.attention, weights, linears),
        attention_branch=branch(spec.attention_norms),
        mlp=_load_mlp(spec.mlp, linears),
        mlp_branch=branch(spec.mlp_norms),
        kind=spec.attention.kind,
        rotary=rotary,
    )


def _load_attention(
    spec: AttentionSpec, weights: WeightReader, linears: LinearLoader
) -> SelfAttention | LatentAttention:
    parts, latent = linears.load_attention(spec), spec.latent
    if latent is not None:
        low = latent.query_norm
        return LatentAttention(
            spec=spec,
            linears=parts,
            tensors=load_latent(spec, weights),
            norm=load_norm(latent.norm, weights),
            query_norm=None if low is None else load_norm(low, weights),
        )
    query_norm, key_norm = (
        None if one is None else load_norm(one, weights, spec.order_of(one.size))
        for one in (spec.query_norm, spec.key_norm)
    )
    return SelfAttention(
        spec=spec,
        linears=parts,
        query_norm=query_norm,
        key_norm=key_norm,
        sinks=linears.load_sinks(spec),
    )


def _load_mlp(spec: MlpSpec | ExpertsSpec, linears: LinearLoader) -> Mlp | Experts:
    if isinstance(spec, MlpSpec):
        return Mlp(spec, linears.load_mlp(spec))
    shared = spec.shared
    return Experts(
        spec=spec,
        router=linears.load_router(spec.router),
        experts=[Mlp(one, linears.load_mlp(one, is_expert=True)) for one in spec.experts],
        shared=None if shared is None else Mlp(shared, linears.load_mlp(shared, is_expert=True)),
        choose=linears.choose_rows,
        finish=linears.sum_of_ranks,
    )


def load_norm(spec: NormSpec, weights: WeightReader, order: Sequence[int] | None = None) -> Norm:
    """Load a norm. Raises StartupError naming the tensor at fault."""
    tensors = load_norm_tensors(spec, weights, order)
    if tensors.bias is not None:
        return LayerNorm(tensors.weight, tensors.bias, spec.epsilon)
    return RmsNorm(tensors.weight, spec.epsilon)
