"""The decoder that Llama, Mistral, Qwen2 and Qwen3 share.

It sees tensors only; the model runner handles requests and plans. Weights are read by name and
shape, so this file also lists the content of a checkpoint.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from pagewire_worker.backend.attention import StepAttention
from pagewire_worker.backend.backend import StepBatch
from pagewire_worker.checkpoint.model_config import ModelConfig
from pagewire_worker.checkpoint.weights import WeightReader
from pagewire_worker.kv.kv_cache import LayerCache
from pagewire_worker.layers.linear import Linear, LinearFactory, LinearKind
from pagewire_worker.layers.rotary import RotaryTable, Rotation
from pagewire_worker.models.layer_linears import load_layer_linears, load_output


class RmsNorm:
    """x / rms(x) * weight over the last dimension.

    The product with the weight is taken after rounding to the type of `x`, as in published models.
    """

    __slots__ = ("_epsilon", "_weight")

    def __init__(self, weight: Tensor, epsilon: float) -> None:
        self._weight = weight
        self._epsilon = epsilon

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise [..., size]."""
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self._epsilon)
        return self._weight * (wide * scale).to(x.dtype)


class SelfAttention:
    """Grouped-query attention (Ainslie et al., 2023) over a paged cache."""

    __slots__ = ("_config", "_key_norm", "_output", "_qkv", "_query_norm")

    def __init__(
        self,
        *,
        config: ModelConfig,
        qkv: Linear,
        output: Linear,
        query_norm: RmsNorm | None,
        key_norm: RmsNorm | None,
    ) -> None:
        self._config = config
        self._qkv = qkv
        self._output = output
        self._query_norm = query_norm
        self._key_norm = key_norm

    def __call__(
        self,
        x: Tensor,
        rotation: Rotation,
        slot_mapping: Tensor,
        cache: LayerCache,
        attend: StepAttention,
        faults: Tensor | None = None,
    ) -> Tensor:
        """Map [tokens, hidden] to [tokens, hidden]; writes keys and values before it reads them."""
        config = self._config
        num_tokens = x.shape[0]
        heads = self._qkv(x).view(num_tokens, -1, config.head_dim)
        sizes = (config.num_heads, config.num_kv_heads, config.num_kv_heads)
        query, key, value = heads.split(sizes, dim=1)
        if self._query_norm is not None and self._key_norm is not None:
            query, key = self._query_norm(query), self._key_norm(key)
        cache.write(slot_mapping, rotation.rotate(key), value, faults)
        attended = attend(rotation.rotate(query), cache)
        return self._output(attended.reshape(num_tokens, -1))


class GatedMlp:
    """down(silu(gate(x)) * up(x))."""

    __slots__ = ("_down", "_gate_up")

    def __init__(self, gate_up: Linear, down: Linear) -> None:
        self._gate_up = gate_up
        self._down = down

    def __call__(self, x: Tensor) -> Tensor:
        """Map [tokens, hidden] to [tokens, hidden]."""
        gate, up = self._gate_up(x).chunk(2, dim=-1)
        return self._down(functional.silu(gate) * up)


class DecoderLayer:
    """One transformer block with norms before attention and MLP."""

    __slots__ = ("_attention", "_attention_norm", "_mlp", "_mlp_norm")

    def __init__(
        self, attention_norm: RmsNorm, attention: SelfAttention, mlp_norm: RmsNorm, mlp: GatedMlp
    ) -> None:
        self._attention_norm = attention_norm
        self._attention = attention
        self._mlp_norm = mlp_norm
        self._mlp = mlp

    def __call__(
        self,
        hidden: Tensor,
        rotation: Rotation,
        slot_mapping: Tensor,
        cache: LayerCache,
        attend: StepAttention,
        faults: Tensor | None = None,
    ) -> Tensor:
        """Map [tokens, hidden] to [tokens, hidden]; `faults` as in StepBatch."""
        normed = self._attention_norm(hidden)
        hidden = hidden + self._attention(normed, rotation, slot_mapping, cache, attend, faults)
        return hidden + self._mlp(self._mlp_norm(hidden))


class Decoder:
    """Maps token ids to the hidden states of the requested rows, and these to logits."""

    name = "torch"
    is_batch_invariant = False

    def __init__(
        self,
        *,
        config: ModelConfig,
        embedding: Tensor,
        layers: Sequence[DecoderLayer],
        norm: RmsNorm,
        output: Linear,
        rotary: RotaryTable,
    ) -> None:
        self.config = config
        self._embedding = embedding
        self._layers = layers
        self._norm = norm
        self._output = output
        self._rotary = rotary

    def forward(
        self,
        batch: StepBatch,
        caches: Sequence[LayerCache],
        attend: StepAttention,
        on_layer: Callable[[], None],
    ) -> Tensor:
        """Run one flat batch.

        Args:
            caches: One per layer.
            attend: Attention, prepared for the sequences of this step.

        Returns:
            Hidden states after the last norm, [outputs, hidden].
        """
        hidden = functional.embedding(batch.token_ids, self._embedding)
        rotation = self._rotary.at(batch.positions)
        for layer, cache in zip(self._layers, caches, strict=True):
            hidden = layer(hidden, rotation, batch.slot_mapping, cache, attend, batch.faults)
            on_layer()
        return self._norm(hidden.index_select(0, batch.output_rows))

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits [rows, vocab] in float32 for hidden states that `forward` returned."""
        return self.narrow_logits(hidden).float()

    def narrow_logits(self, hidden: Tensor) -> Tensor:
        """Return the logits in the type of the model."""
        return self._output(hidden)


def load_decoder(
    config: ModelConfig,
    weights: WeightReader,
    linears: LinearKind,
    num_positions: int,
    device: torch.device,
) -> Decoder:
    """Build the decoder from a checkpoint. Raises StartupError naming the tensor at fault."""
    embedding = weights.take("model.embed_tokens.weight", (config.vocab_size, config.hidden_size))
    layers = [
        _load_layer(config, weights, linears.layer, f"model.layers.{index}")
        for index in range(config.num_layers)
    ]
    norm = _load_norm(config, weights, "model.norm", config.hidden_size)
    output = load_output(config, weights, linears.output, embedding)
    rotary = RotaryTable(
        rope=config.rope,
        head_dim=config.head_dim,
        num_positions=num_positions,
        device=device,
        dtype=embedding.dtype,
    )
    return Decoder(
        config=config, embedding=embedding, layers=layers, norm=norm, output=output, rotary=rotary
    )


def _load_layer(
    config: ModelConfig, weights: WeightReader, make_linear: LinearFactory, prefix: str
) -> DecoderLayer:
    linears = load_layer_linears(config, weights, make_linear, prefix)
    norms = [
        _load_norm(config, weights, f"{prefix}.self_attn.{name}", config.head_dim)
        if config.has_qk_norm
        else None
        for name in ("q_norm", "k_norm")
    ]
    return DecoderLayer(
        _load_norm(config, weights, f"{prefix}.input_layernorm", config.hidden_size),
        SelfAttention(
            config=config,
            qkv=linears.qkv,
            output=linears.output,
            query_norm=norms[0],
            key_norm=norms[1],
        ),
        _load_norm(config, weights, f"{prefix}.post_attention_layernorm", config.hidden_size),
        GatedMlp(linears.gate_up, linears.down),
    )


def _load_norm(config: ModelConfig, weights: WeightReader, prefix: str, size: int) -> RmsNorm:
    return RmsNorm(weights.take(f"{prefix}.weight", (size,)), config.rms_norm_eps)
