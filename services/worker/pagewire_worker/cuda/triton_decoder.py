"""The decoder of models/decoder.py on Triton kernels.

Between its matrix products and attention, a layer of the usual form takes four kernels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pagewire_worker.backend.attention import StepAttention
from pagewire_worker.backend.backend import StepBatch
from pagewire_worker.checkpoint.dtypes import FP8
from pagewire_worker.checkpoint.weights import WeightReader
from pagewire_worker.cuda.triton_latent import TritonLatent, load_triton_latent
from pagewire_worker.cuda.triton_mlp import TritonExperts, TritonMlp, load_mlp
from pagewire_worker.families.plan import (
    AttentionSpec,
    BranchNorms,
    LayerSpec,
    ModelPlan,
    NormSpec,
)
from pagewire_worker.kv.kv_cache import LayerCache
from pagewire_worker.layers.linear import Linear
from pagewire_worker.layers.logits import finish_logits
from pagewire_worker.layers.rotary import RotaryTable, shared_tables
from pagewire_worker.models.linear_loader import AttentionLinears, LinearLoader
from pagewire_worker.models.load_parts import (
    embedding_factor,
    load_embedding,
    load_norm_tensors,
)
from pagewire_worker.triton_kernels.add_norm import add_norm
from pagewire_worker.triton_kernels.rotary_kv_write import HeadNorms, rotary_kv_write


@dataclass(frozen=True, slots=True)
class AddNorm:
    """A norm with its weights; see add_norm."""

    weight: Tensor
    epsilon: float
    bias: Tensor | None

    def __call__(self, x: Tensor | None, residual: Tensor, rows: Tensor | None = None) -> Tensor:
        """Add `x` to `residual` in place and return the sum's norm, [rows, size]."""
        return add_norm(x, residual, self.weight, self.epsilon, rows, self.bias)


@dataclass(frozen=True, slots=True)
class NormPair:
    """The norms before and behind a part of a layer."""

    before: AddNorm | None
    after: AddNorm | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonLayer:
    """Weights of one transformer block.

    Attributes:
        head_norms: Of each head of queries and keys.
        whole_norms: Of the queries of all heads together, and of the keys.
        rotary: None for no rotation.
        sinks: Of attention, float32 [heads]; None for none.
    """

    spec: LayerSpec
    linears: AttentionLinears
    mlp: TritonMlp | TritonExperts
    attention_norms: NormPair
    mlp_norms: NormPair
    head_norms: HeadNorms | None
    whole_norms: tuple[AddNorm, AddNorm] | None
    rotary: RotaryTable | None
    sinks: Tensor | None
    latent: TritonLatent | None = None


class ResidualStream:
    """The hidden states of a step, and the output of the last part, which is added later.

    Args:
        multiplier: Of outputs before they are added.
    """

    def __init__(self, hidden: Tensor, multiplier: float) -> None:
        self._hidden = hidden
        self._added: Tensor | None = None
        self._multiplier = multiplier

    def enter(self, norm: AddNorm | None) -> Tensor:
        """Add the last output, and return the input of the next part."""
        added, self._added = self._added, None
        if norm is not None:
            return norm(added, self._hidden)
        if added is not None:
            self._hidden += added
        return self._hidden

    def leave(self, output: Tensor, norm: AddNorm | None) -> None:
        """Keep the output of a part."""
        if norm is not None:
            output = norm(None, output)
        self._added = output if self._multiplier == 1.0 else output * self._multiplier

    def finish(self, norm: AddNorm, rows: Tensor) -> Tensor:
        """Return the normalised states of `rows`, [n, hidden]."""
        self.enter(None)
        return norm(None, self._hidden, rows)


class TritonDecoder:
    """A Decoder on Triton kernels."""

    name = "triton"
    is_batch_invariant = True

    def __init__(
        self,
        *,
        plan: ModelPlan,
        embedding: Tensor,
        embed: Callable[[Tensor], Tensor],
        layers: Sequence[TritonLayer],
        norm: AddNorm,
        output: Linear,
    ) -> None:
        self.plan = plan
        self._embed = embed
        self._factor = embedding_factor(plan, embedding.dtype)
        self._layers = layers
        self._norm = norm
        self._output = output
        # Of caches of 8-bit floats without scales.
        self._ones = torch.ones(2, dtype=torch.float32, device=embedding.device)

    def forward(
        self,
        batch: StepBatch,
        caches: Sequence[LayerCache],
        attends: Sequence[StepAttention],
        on_layer: Callable[[], None],
    ) -> Tensor:
        """Run one flat batch; arguments and result as of Decoder.forward."""
        hidden = self._embed(batch.token_ids)
        if self._factor != 1.0:
            hidden *= self._factor
        stream, groups = ResidualStream(hidden, self.plan.residual_multiplier), batch.groups
        for layer, cache, attend in zip(self._layers, caches, attends, strict=True):
            slots = groups[cache.group].slot_mapping
            attended = self._attend(layer, stream, cache, batch, slots, attend)
            stream.leave(layer.linears.output(attended), layer.attention_norms.after)
            normed = stream.enter(layer.mlp_norms.before)
            stream.leave(layer.mlp(normed), layer.mlp_norms.after)
            on_layer()
        return stream.finish(self._norm, batch.output_rows)

    def _scales_of(self, cache: LayerCache) -> Tensor | None:
        """Return the scales of keys and values, float32 [2]; None if they have no 8 bits."""
        if cache.key.dtype != FP8:
            return None
        return self._ones if cache.scales is None else cache.scales.both

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits [rows, vocab] in float32 for hidden states that `forward` returned."""
        return self.narrow_logits(hidden).float()

    def narrow_logits(self, hidden: Tensor) -> Tensor:
        """Return the logits in the type of the model."""
        return finish_logits(self.plan.logits, self._output(hidden))

    def _attend(
        self,
        layer: TritonLayer,
        stream: ResidualStream,
        cache: LayerCache,
        batch: StepBatch,
        slots: Tensor,
        attend: StepAttention,
    ) -> Tensor:
        """Return what all heads of a layer saw, [tokens, heads * head_dim].

        Args:
            slots: The slot mapping of the layer's cache group, [tokens].
        """
        x = stream.enter(layer.attention_norms.before)
        scales = self._scales_of(cache)
        if layer.latent is not None:
            return layer.latent(x, cache, batch, slots, attend, scales)
        qkv = layer.linears.qkv(x)
        if layer.whole_norms is not None:
            query_key = qkv.split(layer.spec.attention.sizes, dim=1)[:2]
            for part, norm in zip(query_key, layer.whole_norms, strict=True):
                part.copy_(norm(None, part))
        rotary = layer.rotary
        query = rotary_kv_write(
            qkv,
            batch.positions,
            slots,
            None if rotary is None else rotary.cosines,
            None if rotary is None else rotary.sines,
            cache.key,
            cache.value,
            layer.head_norms,
            scales,
            batch.faults,
            None if rotary is None else rotary.query_scales,
        )
        return attend(query, cache, layer.sinks).view(len(query), -1)


def load_triton_decoder(
    plan: ModelPlan,
    weights: WeightReader,
    linears: LinearLoader,
    num_positions: int,
) -> TritonDecoder:
    """Build the decoder from a checkpoint. Raises StartupError naming the tensor at fault."""
    embedding = load_embedding(plan, weights)
    tables = shared_tables(
        [layer.attention.rope for layer in plan.layers],
        lambda rope: RotaryTable(rope, num_positions, embedding.device, embedding.dtype),
    )
    layers = [
        _load_layer(spec, weights, linears, table)
        for spec, table in zip(plan.layers, tables, strict=True)
    ]
    norm = _load_norm(plan.norm, weights)
    output = linears.load_output(plan, embedding)
    return TritonDecoder(
        plan=plan,
        embedding=embedding,
        embed=linears.embedding(embedding),
        layers=layers,
        norm=norm,
        output=output,
    )


def _load_layer(
    spec: LayerSpec, weights: WeightReader, linears: LinearLoader, rotary: RotaryTable | None
) -> TritonLayer:
    norms = _load_head_norms(spec.attention, weights)
    is_whole = norms is not None and spec.attention.has_whole_norms
    parts = linears.load_attention(spec.attention)
    return TritonLayer(
        spec=spec,
        linears=parts,
        mlp=load_mlp(spec.mlp, linears),
        attention_norms=_load_pair(spec.attention_norms, weights),
        mlp_norms=_load_pair(spec.mlp_norms, weights),
        head_norms=(
            HeadNorms(norms[0].weight, norms[1].weight, norms[0].epsilon)
            if norms is not None and not is_whole
            else None
        ),
        whole_norms=norms if is_whole else None,
        rotary=rotary,
        sinks=linears.load_sinks(spec.attention),
        latent=load_triton_latent(spec.attention, weights, parts, rotary),
    )


def _load_head_norms(spec: AttentionSpec, weights: WeightReader) -> tuple[AddNorm, AddNorm] | None:
    if spec.query_norm is None or spec.key_norm is None:
        return None
    query, key = (
        _load_norm(one, weights, spec.order_of(one.size))
        for one in (spec.query_norm, spec.key_norm)
    )
    return query, key


def _load_pair(norms: BranchNorms, weights: WeightReader) -> NormPair:
    before, after = (
        None if one is None else _load_norm(one, weights) for one in (norms.before, norms.after)
    )
    return NormPair(before, after)


def _load_norm(
    spec: NormSpec, weights: WeightReader, order: Sequence[int] | None = None
) -> AddNorm:
    tensors = load_norm_tensors(spec, weights, order)
    return AddNorm(tensors.weight, spec.epsilon, tensors.bias)
