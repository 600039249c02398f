"""The decoder of models/decoder.py on Triton kernels.

Between its matrix products and attention, a layer takes four kernels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from pagewire_worker.backend.attention import StepAttention
from pagewire_worker.backend.backend import StepBatch
from pagewire_worker.checkpoint.dtypes import FP8
from pagewire_worker.checkpoint.model_config import ModelConfig
from pagewire_worker.checkpoint.weights import WeightReader
from pagewire_worker.kv.kv_cache import LayerCache
from pagewire_worker.layers.linear import Linear, LinearFactory, LinearKind
from pagewire_worker.layers.rotary import rotary_angles
from pagewire_worker.models.layer_linears import LayerLinears, load_layer_linears, load_output
from pagewire_worker.triton_kernels.add_rms_norm import add_rms_norm
from pagewire_worker.triton_kernels.rotary_kv_write import HeadNorms, rotary_kv_write
from pagewire_worker.triton_kernels.silu_mul import silu_mul


@dataclass(frozen=True, slots=True)
class TritonLayer:
    """Weights of one transformer block."""

    attention_norm: Tensor
    mlp_norm: Tensor
    head_norms: HeadNorms | None
    linears: LayerLinears


class TritonDecoder:
    """A Decoder on Triton kernels."""

    name = "triton"
    is_batch_invariant = True

    def __init__(
        self,
        *,
        config: ModelConfig,
        embedding: Tensor,
        layers: Sequence[TritonLayer],
        norm: Tensor,
        output: Linear,
        angles: Tensor,
    ) -> None:
        self.config = config
        self._embedding = embedding
        self._layers = layers
        self._norm = norm
        self._output = output
        both = torch.cat((angles, angles), dim=-1)
        self._cosines = both.cos().to(embedding)
        self._sines = both.sin().to(embedding)
        # An 8-bit cache stores keys and values unscaled: no checkpoint has scales for them.
        self._fp8_scales = torch.ones(2, dtype=torch.float32, device=embedding.device)

    def forward(
        self,
        batch: StepBatch,
        caches: Sequence[LayerCache],
        attend: StepAttention,
        on_layer: Callable[[], None],
    ) -> Tensor:
        """Run one flat batch; arguments and result as of Decoder.forward."""
        residual = functional.embedding(batch.token_ids, self._embedding)
        added: Tensor | None = None
        for layer, cache in zip(self._layers, caches, strict=True):
            added = self._compute(layer, added, residual, cache, batch, attend)
            on_layer()
        assert added is not None
        residual += added
        return add_rms_norm(None, residual, self._norm, self.config.rms_norm_eps, batch.output_rows)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits [rows, vocab] in float32 for hidden states that `forward` returned."""
        return self.narrow_logits(hidden).float()

    def narrow_logits(self, hidden: Tensor) -> Tensor:
        """Return the logits in the type of the model."""
        return self._output(hidden)

    def _compute(
        self,
        layer: TritonLayer,
        added: Tensor | None,
        residual: Tensor,
        cache: LayerCache,
        batch: StepBatch,
        attend: StepAttention,
    ) -> Tensor:
        """Add the output of the layer before to the residual, and return this layer's output."""
        epsilon = self.config.rms_norm_eps
        normed = add_rms_norm(added, residual, layer.attention_norm, epsilon)
        query = rotary_kv_write(
            layer.linears.qkv(normed),
            batch.positions,
            batch.slot_mapping,
            self._cosines,
            self._sines,
            cache.key,
            cache.value,
            layer.head_norms,
            self._fp8_scales if cache.key.dtype == FP8 else None,
            batch.faults,
        )
        attended = attend(query, cache).view(len(query), -1)
        normed = add_rms_norm(layer.linears.output(attended), residual, layer.mlp_norm, epsilon)
        return layer.linears.down(silu_mul(layer.linears.gate_up(normed)))


def load_triton_decoder(
    config: ModelConfig,
    weights: WeightReader,
    linears: LinearKind,
    num_positions: int,
) -> TritonDecoder:
    """Build the decoder from a checkpoint. Raises StartupError naming the tensor at fault."""
    embedding = weights.take("model.embed_tokens.weight", (config.vocab_size, config.hidden_size))
    layers = [
        _load_layer(config, weights, linears.layer, f"model.layers.{index}")
        for index in range(config.num_layers)
    ]
    norm = weights.take("model.norm.weight", (config.hidden_size,))
    output = load_output(config, weights, linears.output, embedding)
    angles = rotary_angles(config.rope, config.head_dim, num_positions)
    return TritonDecoder(
        config=config, embedding=embedding, layers=layers, norm=norm, output=output, angles=angles
    )


def _load_layer(
    config: ModelConfig, weights: WeightReader, make_linear: LinearFactory, prefix: str
) -> TritonLayer:
    hidden = (config.hidden_size,)
    return TritonLayer(
        weights.take(f"{prefix}.input_layernorm.weight", hidden),
        weights.take(f"{prefix}.post_attention_layernorm.weight", hidden),
        _load_head_norms(config, weights, f"{prefix}.self_attn"),
        load_layer_linears(config, weights, make_linear, prefix),
    )


def _load_head_norms(config: ModelConfig, weights: WeightReader, prefix: str) -> HeadNorms | None:
    if not config.has_qk_norm:
        return None
    query, key = (
        weights.take(f"{prefix}.{name}.weight", (config.head_dim,)) for name in ("q_norm", "k_norm")
    )
    return HeadNorms(query, key, config.rms_norm_eps)
