"""The encoder in plain torch operations, on any device: one path for all families.

Every token attends to all others of its prompt, or to its neighbours. There is no cache.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from pagewire_shared.errors import StartupError
from pagewire_worker.backend.head import ClassificationHead, linear_step
from pagewire_worker.checkpoint.weights import WeightReader
from pagewire_worker.encoders.spec import (
    EncoderLayerSpec,
    EncoderLinearSpec,
    EncoderNormSpec,
    EncoderSpec,
    HeadSpec,
)
from pagewire_worker.families.specs.rope_spec import RopeSpec
from pagewire_worker.layers.rotary import RotaryTable, Rotation

Map = Callable[[Tensor], Tensor]

ACTIVATIONS: Mapping[str, Map] = {
    "gelu": functional.gelu,
    "gelu_new": partial(functional.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
    "silu": functional.silu,
    "tanh": torch.tanh,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderLayer:
    """One layer with its weights."""

    spec: EncoderLayerSpec
    query_key_value: Map
    output: Map
    attention_norm: Map
    up: Map
    down: Map
    mlp_norm: Map
    activation: Map
    rotary: RotaryTable | None
    num_heads: int

    def __call__(self, hidden: Tensor, rotation: Rotation | None, lengths: Sequence[int]) -> Tensor:
        """Map [tokens, hidden] to [tokens, hidden] for prompts of `lengths`, one after another."""
        if self.spec.is_pre_norm:
            hidden = hidden + self._attend(self.attention_norm(hidden), rotation, lengths)
            return hidden + self._transform(self.mlp_norm(hidden))
        hidden = self.attention_norm(hidden + self._attend(hidden, rotation, lengths))
        return self.mlp_norm(hidden + self._transform(hidden))

    def _attend(self, x: Tensor, rotation: Rotation | None, lengths: Sequence[int]) -> Tensor:
        num_tokens = x.shape[0]
        heads = self.query_key_value(x).view(num_tokens, 3, self.num_heads, -1)
        query, key, value = heads.unbind(1)
        if rotation is not None:
            query, key = rotation.rotate(query), rotation.rotate(key)
        parts = zip(query.split(lengths), key.split(lengths), value.split(lengths), strict=True)
        attended = [self._attend_one(*part) for part in parts]
        return self.output(torch.cat(attended).reshape(num_tokens, -1))

    def _attend_one(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attend within one prompt, [tokens, heads, size] each."""
        mask = None
        if self.spec.window is not None:
            places = torch.arange(query.shape[0], device=query.device)
            mask = (places[:, None] - places[None, :]).abs() <= self.spec.window
        attended = functional.scaled_dot_product_attention(
            query.transpose(0, 1)[None],
            key.transpose(0, 1)[None],
            value.transpose(0, 1)[None],
            attn_mask=mask,
        )
        return attended[0].transpose(0, 1)

    def _transform(self, x: Tensor) -> Tensor:
        up = self.up(x)
        if self.spec.is_gated:
            values, gates = up.chunk(2, dim=-1)
            return self.down(self.activation(values) * gates)
        return self.down(self.activation(up))


class Encoder:
    """Maps the tokens of prompts to their hidden states.

    Args:
        tokens: Embeddings of tokens [vocab, hidden].
        positions, types: Embeddings of positions and token types; None for none.
        norm, final_norm: Applied to the embeddings, and to the states of the last layer.
    """

    def __init__(
        self,
        *,
        spec: EncoderSpec,
        tokens: Tensor,
        positions: Tensor | None,
        types: Tensor | None,
        norm: Map,
        layers: Sequence[EncoderLayer],
        final_norm: Map,
    ) -> None:
        self.spec = spec
        self._tokens = tokens
        self._positions = positions
        self._types = types
        self._norm = norm
        self._layers = layers
        self._final_norm = final_norm

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights."""
        return self._tokens.dtype

    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        token_types: Tensor | None,
        lengths: Sequence[int],
        on_layer: Callable[[], None],
    ) -> Tensor:
        """Return the states [tokens, hidden] of whole prompts that lie one after the other.

        Args:
            token_ids, positions, token_types: [tokens] int64 each; no types for zeros.
            lengths: Tokens of each prompt.
            on_layer: Called after each layer.
        """
        hidden = functional.embedding(token_ids, self._tokens)
        if self._types is not None:
            if token_types is None or self._types.shape[0] == 1:
                token_types = torch.zeros_like(token_ids)
            hidden = hidden + functional.embedding(token_types, self._types)
        if self._positions is not None:
            rows = positions + self.spec.embedding.position_offset
            hidden = hidden + functional.embedding(rows, self._positions)
        hidden = self._norm(hidden)
        rotations: dict[int, Rotation] = {}
        for layer in self._layers:
            rotation = None
            if layer.rotary is not None:
                key = id(layer.rotary)
                rotation = rotations.setdefault(key, layer.rotary.at(positions))
            hidden = layer(hidden, rotation, lengths)
            on_layer()
        return self._final_norm(hidden)


class _Loader:
    """Takes the tensors of one encoder from a checkpoint."""

    def __init__(self, spec: EncoderSpec, weights: WeightReader, device: torch.device) -> None:
        self._spec = spec
        self._weights = weights
        self._device = device

    def linear(self, spec: EncoderLinearSpec) -> Map:
        shape, size = (spec.num_outputs, spec.num_inputs), (spec.num_outputs,)
        weight = self._weights.take_stacked([(f"{name}.weight", shape) for name in spec.names])
        bias = None
        if spec.has_bias:
            bias = self._weights.take_stacked([(f"{name}.bias", size) for name in spec.names])
        return linear_step(weight, bias)

    def norm(self, spec: EncoderNormSpec | None) -> Map:
        if spec is None:
            return lambda x: x
        size, eps = (self._spec.hidden_size,), self._spec.norm_eps
        weight = self._weights.take(f"{spec.name}.weight", size)
        bias = self._weights.take(f"{spec.name}.bias", size) if spec.has_bias else None
        return lambda x: functional.layer_norm(x, size, weight, bias, eps)

    def table(self, name: str | None, num_rows: int) -> Tensor | None:
        if name is None:
            return None
        return self._weights.take(name, (num_rows, self._spec.hidden_size))

    def layer(self, spec: EncoderLayerSpec, rotary: RotaryTable | None) -> EncoderLayer:
        return EncoderLayer(
            spec=spec,
            query_key_value=self.linear(spec.query_key_value),
            output=self.linear(spec.output),
            attention_norm=self.norm(spec.attention_norm),
            up=self.linear(spec.up),
            down=self.linear(spec.down),
            mlp_norm=self.norm(spec.mlp_norm),
            activation=_activation(self._spec.activation),
            rotary=rotary,
            num_heads=self._spec.num_heads,
        )

    def head(self, spec: HeadSpec) -> ClassificationHead:
        steps = [self.linear(spec.dense), _activation(spec.activation), self.norm(spec.norm)]
        steps.append(self.linear(spec.output))
        return ClassificationHead(spec.kind, spec.output.num_outputs, steps)


def load_encoder(
    spec: EncoderSpec, weights: WeightReader, num_positions: int, device: torch.device
) -> tuple[Encoder, ClassificationHead | None]:
    """Read an encoder and its head, if it has one. Raises StartupError naming the tensor at fault.

    Args:
        num_positions: Longest prompt.
    """
    loader, embedding = _Loader(spec, weights, device), spec.embedding
    for name in spec.unused:
        weights.ignore(name)
    tokens = weights.take(embedding.tokens, (spec.vocab_size, spec.hidden_size))
    head_dim = spec.hidden_size // spec.num_heads
    thetas = {layer.rope_theta for layer in spec.layers if layer.rope_theta is not None}
    rotaries = {
        theta: RotaryTable(
            RopeSpec(
                head_dim=head_dim,
                rotary_dim=head_dim,
                max_positions=spec.max_positions,
                theta=theta,
            ),
            num_positions,
            device,
            tokens.dtype,
        )
        for theta in thetas
    }
    encoder = Encoder(
        spec=spec,
        tokens=tokens,
        positions=loader.table(embedding.positions, embedding.num_positions),
        types=loader.table(embedding.types, embedding.num_types),
        norm=loader.norm(embedding.norm),
        layers=[
            loader.layer(one, rotaries[one.rope_theta] if one.rope_theta is not None else None)
            for one in spec.layers
        ],
        final_norm=loader.norm(spec.final_norm),
    )
    return encoder, loader.head(spec.head) if spec.head is not None else None


def _activation(name: str) -> Map:
    if name not in ACTIVATIONS:
        shown = ", ".join(ACTIVATIONS)
        raise StartupError(f"config.json: activation {name!r} is not supported, only {shown}")
    return ACTIVATIONS[name]
