"""Loads a checkpoint of the Llama family, packed for the kernels.

Tensors are read from the mapped file, packed by all threads, and released at once: there is never a
second copy of the weights.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor

from pagewire_worker.checkpoint.coded_matrix import CodedMatrix
from pagewire_worker.checkpoint.model_config import ModelConfig
from pagewire_worker.checkpoint.weights import WeightReader
from pagewire_worker.cpu_kernels import abi
from pagewire_worker.cpu_kernels.library import TYPES, KernelPool
from pagewire_worker.cpu_kernels.packing import (
    PANEL,
    PackedWeights,
    Part,
    Storage,
    WeightArena,
    pack,
)
from pagewire_worker.layers.rotary import rotary_angles

PIECE_BYTES = 256 * 1024**2
"""Bytes that are reserved at once for matrices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedLayer:
    """Weights of one layer; norms are float32."""

    attention_norm: Tensor
    mlp_norm: Tensor
    query_norm: Tensor | None
    key_norm: Tensor | None
    qkv: PackedWeights
    output: PackedWeights
    gate_up: PackedWeights
    down: PackedWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedDecoder:
    """Weights of a model.

    Attributes:
        embedding, vocabulary: The same matrix if the model ties them.
        norm: [hidden] float32.
        cosines, sines: [positions, head_dim / 2] float32.
    """

    config: ModelConfig
    dtype: torch.dtype
    embedding: PackedWeights
    vocabulary: PackedWeights
    norm: Tensor
    cosines: Tensor
    sines: Tensor
    layers: tuple[FusedLayer, ...]


def load_decoder(
    config: ModelConfig,
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
    packer = _Packer(config, weights, pool, _Kinds.of(quantization, dtype))
    embedding = packer.vocabulary_matrix("model.embed_tokens.weight")
    layers = tuple(packer.layer(f"model.layers.{index}") for index in range(config.num_layers))
    norm = packer.norm("model.norm", config.hidden_size)
    if config.is_tied:
        vocabulary = embedding
        weights.ignore("lm_head.weight")
    else:
        vocabulary = packer.vocabulary_matrix("lm_head.weight")
    angles = rotary_angles(config.rope, config.head_dim, num_positions)
    return FusedDecoder(
        config=config,
        dtype=dtype,
        embedding=embedding,
        vocabulary=vocabulary,
        norm=norm,
        cosines=angles.cos(),
        sines=angles.sin(),
        layers=layers,
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
        self, config: ModelConfig, weights: WeightReader, pool: KernelPool, kinds: _Kinds
    ) -> None:
        self._config = config
        self._weights = weights
        self._pool = pool
        self._kinds = kinds
        self._arena = WeightArena(PIECE_BYTES)

    def vocabulary_matrix(self, name: str) -> PackedWeights:
        shape = (self._config.vocab_size, self._config.hidden_size)
        with self._matrix(name, shape) as rows:
            parts = [Part(rows)]
            storage = Storage.of_parts(self._kinds.vocabulary, *shape, parts)
            return pack(self._pool, self._arena, storage, parts)

    def norm(self, prefix: str, size: int) -> Tensor:
        with self._weights.borrow(f"{prefix}.weight", (size,)) as weight:
            return weight.float().clone()

    def layer(self, prefix: str) -> FusedLayer:
        config = self._config
        hidden, inner = config.hidden_size, config.intermediate_size
        num_query = config.num_heads * config.head_dim
        num_key = config.num_kv_heads * config.head_dim
        attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        query_panels, key_panels = num_query // PANEL, num_key // PANEL
        qkv = [
            _Piece(f"{attention}.q_proj", num_query, 0),
            _Piece(f"{attention}.k_proj", num_key, query_panels),
            _Piece(f"{attention}.v_proj", num_key, query_panels + key_panels),
        ]
        gate_up = [
            _Piece(f"{mlp}.gate_proj", inner, 0, panel_step=2),
            _Piece(f"{mlp}.up_proj", inner, 1, panel_step=2),
        ]
        output = [_Piece(f"{attention}.o_proj", hidden)]
        down = [_Piece(f"{mlp}.down_proj", hidden)]
        return FusedLayer(
            attention_norm=self.norm(f"{prefix}.input_layernorm", hidden),
            mlp_norm=self.norm(f"{prefix}.post_attention_layernorm", hidden),
            query_norm=self._head_norm(f"{attention}.q_norm"),
            key_norm=self._head_norm(f"{attention}.k_norm"),
            qkv=self._linear(qkv, hidden, config.has_qkv_bias),
            output=self._linear(output, num_query, config.has_output_bias),
            gate_up=self._linear(gate_up, hidden, config.has_mlp_bias),
            down=self._linear(down, inner, config.has_mlp_bias),
        )

    def _head_norm(self, prefix: str) -> Tensor | None:
        return self.norm(prefix, self._config.head_dim) if self._config.has_qk_norm else None

    def _linear(self, pieces: "Sequence[_Piece]", num_inputs: int, has_bias: bool) -> PackedWeights:
        num_outputs = sum(piece.num_outputs for piece in pieces)
        with ExitStack() as borrowed:

            def part(piece: _Piece, name: str, shape: tuple[int, ...]) -> Part:
                found = self._matrix(f"{piece.prefix}.{name}", shape)
                rows = borrowed.enter_context(found)
                return Part(rows, piece.first_panel, piece.panel_step)

            parts = [part(piece, "weight", (piece.num_outputs, num_inputs)) for piece in pieces]
            biases = [part(piece, "bias", (piece.num_outputs,)) for piece in pieces if has_bias]
            storage = Storage.of_parts(self._kinds.layers, num_outputs, num_inputs, parts)
            return pack(self._pool, self._arena, storage, parts, biases)

    def _matrix(
        self, name: str, shape: tuple[int, ...]
    ) -> AbstractContextManager[Tensor | CodedMatrix]:
        """Yield one tensor; codes where the checkpoint has them and they stay."""
        if self._kinds.keeps_codes:
            return self._weights.borrow_matrix(name, shape)
        return self._weights.borrow(name, shape)


@dataclass(frozen=True, slots=True)
class _Piece:
    """One linear layer of the checkpoint, and the panels that it fills in a merged one."""

    prefix: str
    num_outputs: int
    first_panel: int = 0
    panel_step: int = 1
