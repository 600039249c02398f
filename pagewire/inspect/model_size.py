"""Computes from a model's files how much memory it takes and how many sequences fit.

The KV formula is that of the worker (pagewire_worker.kv.kv_cache.bytes_per_block); a test compares
them.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pagewire_shared.errors import StartupError
from pagewire_shared.model_files.config import context_of
from pagewire_shared.model_files.folder import GGUF_NAME, INDEX_NAME, SINGLE_NAME
from pagewire_shared.model_files.quantization import quantization_of
from pagewire_shared.model_files.text_model import is_of_tower, text_settings

DTYPE_BYTES: Final = {
    **{"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1, "int4": 0.5, "fp8": 1},
    "fp8_e4m3": 1,
}
"""Bytes of one number. Those of scales of weights, some percent, are not counted."""
OUTPUT_ONLY: Final = "int8-output"
QUANTIZATIONS: Final = ("none", "int8", "int4", OUTPUT_ONLY, "fp8")
"""Values of --quantization."""
KV_DTYPES: Final = ("fp8_e4m3", "int8")
"""Types of a KV cache that a model does not compute in."""
KV_SCALE_BYTES: Final = 4
"""Of each key and value of a head in a cache of int8."""
_MAX_HEADER: Final = 100 * 2**20
_EXPERTS: Final = ("num_experts", "num_local_experts", "n_routed_experts")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """Memory of one model in one worker, in bytes unless it says otherwise.

    Attributes:
        num_parameters: Weights, as stored.
        weight_bytes: Of the weights, in the type that they are computed in; of a quantized
            checkpoint as they are stored, if the kernels keep them so.
        kv_token_bytes: Of the KV cache per token of a sequence.
        context: Longest sequence in tokens.
        sequence_bytes: KV cache of one sequence of that length; a sliding window bounds it.
        step_bytes: A rough allowance for the activations of a step and for libraries.
    """

    num_parameters: int
    weight_bytes: int
    kv_token_bytes: int
    context: int
    sequence_bytes: int
    step_bytes: int

    def num_sequences(self, memory: int) -> int:
        """Return how many sequences of full length fit into `memory` bytes beside the model."""
        left = memory - self.weight_bytes - self.step_bytes
        return max(0, left // self.sequence_bytes)


def model_size(
    folder: Path,
    config: Mapping[str, Any],
    *,
    dtype: str,
    quantization: str,
    max_len: int | None,
    kv_dtype: str = "auto",
) -> ModelSize:
    """Return the memory of the model in `folder`.

    Args:
        config: Its config.json, with overrides.
        dtype: Type of activations; "auto" for that of the checkpoint.
        kv_dtype: Type of the KV cache, as of --kv-cache-dtype; "auto" for that of activations.
        quantization: Type of the weights of linear layers, or "none".
        max_len: Longest sequence in tokens; None for the model's own.

    Raises:
        StartupError: The files lack what the sum needs.
    """
    parts = text_settings(config)
    own = str(parts.get("torch_dtype") or parts.get("dtype") or "bfloat16")
    chosen = own if dtype == "auto" else dtype
    if chosen not in DTYPE_BYTES:
        raise StartupError(f"--dtype: {chosen} is not known", field="dtype")
    context = max_len or context_of(config)
    if context is None:
        raise StartupError("--max-model-len is needed: config.json has none", field="max_model_len")
    num_layers = _number(parts, "num_hidden_layers")
    token = num_layers * _cached_bytes(parts, chosen if kv_dtype == "auto" else kv_dtype)
    num_parameters, num_embedding = _parameters(folder, parts)
    is_stored = quantization in ("none", OUTPUT_ONLY)
    linear = chosen if is_stored else quantization
    weights = num_embedding * DTYPE_BYTES[chosen]
    weights += (num_parameters - num_embedding) * DTYPE_BYTES[linear]
    if is_stored and _keeps_codes(config):
        weights = sum(file.stat().st_size for file in _weight_files(folder)) or weights
    if quantization == OUTPUT_ONLY:
        output = _number(parts, "vocab_size") * _number(parts, "hidden_size")
        weights -= output * (DTYPE_BYTES[chosen] - DTYPE_BYTES["int8"])
    window = parts.get("sliding_window") if parts.get("use_sliding_window", True) else None
    kept = min(context, window) if isinstance(window, int) and window > 0 else context
    num_full = sum(kind == "full_attention" for kind in parts.get("layer_types") or ())
    positions = (num_full * context + (num_layers - num_full) * kept) / num_layers
    return ModelSize(
        num_parameters=num_parameters,
        weight_bytes=round(weights),
        kv_token_bytes=token,
        context=context,
        sequence_bytes=round(token * positions),
        step_bytes=2**29 + 2048 * _number(parts, "hidden_size") * 16,
    )


def _cached_bytes(config: Mapping[str, Any], dtype: str) -> int:
    """Return how many bytes of a token one layer keeps."""
    size = round(DTYPE_BYTES[dtype])
    if config.get("kv_lora_rank"):
        if dtype == "int8":
            raise StartupError(
                f"--kv-cache-dtype: {dtype} is not for a cache of latents", field="kv_cache_dtype"
            )
        return (_number(config, "kv_lora_rank") + _number(config, "qk_rope_head_dim")) * size
    num_heads = _number(config, "num_attention_heads")
    head_dim = config.get("head_dim") or _number(config, "hidden_size") // num_heads
    row = head_dim * size + (KV_SCALE_BYTES if dtype == "int8" else 0)
    found: int = 2 * (config.get("num_key_value_heads") or num_heads) * row
    return found


def _keeps_codes(config: Mapping[str, Any]) -> bool:
    """Return whether kernels multiply with the integers of a checkpoint, most of them at least."""
    settings = quantization_of(config) or {}
    method, layout = settings.get("quant_method"), str(settings.get("format"))
    if method == "compressed-tensors":
        return layout.startswith(("pack", "int"))
    methods = ("awq", "bitsandbytes", "gguf", "gptq", "mxfp4")
    return method in methods


def _number(config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise StartupError(f"--model: config.json has no {name}", field="model")
    return value


def _parameters(folder: Path, config: Mapping[str, Any]) -> tuple[int, int]:
    """Return the number of weights, and of those in the embedding, which stays unquantized."""
    files = _weight_files(folder)
    # Packed integers do not tell the number of weights.
    if not files or quantization_of(config) is not None:
        return _estimated(config)
    total = embedding = 0
    for file in files:
        for name, tensor in _header(file).items():
            if is_of_tower(name):
                continue
            size = 1
            for length in tensor["shape"]:
                size *= length
            total += size
            embedding += size if name.endswith("embed_tokens.weight") else 0
    return total, embedding


def _weight_files(folder: Path) -> list[Path]:
    index = folder / INDEX_NAME
    if index.is_file():
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        return [folder / name for name in names if (folder / name).is_file()]
    files = (folder / name for name in (SINGLE_NAME, GGUF_NAME))
    return [file for file in files if file.is_file()][:1]


def _header(file: Path) -> dict[str, Any]:
    """Return the table of a safetensors file: its length in 8 bytes, then JSON."""
    try:
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            if length > _MAX_HEADER:
                raise ValueError("its table is too long")
            table: dict[str, Any] = json.loads(opened.read(length))
    except (OSError, ValueError, struct.error) as error:
        raise StartupError(f"--model: {file} is no safetensors file: {error}") from error
    table.pop("__metadata__", None)
    return table


def _estimated(config: Mapping[str, Any]) -> tuple[int, int]:
    """Return the numbers for a gated decoder of this shape, where no weights are there."""
    hidden, layers = _number(config, "hidden_size"), _number(config, "num_hidden_layers")
    heads = _number(config, "num_attention_heads")
    head_dim = config.get("head_dim") or hidden // heads
    kv_heads = config.get("num_key_value_heads") or heads
    attention = hidden * head_dim * (2 * heads + 2 * kv_heads)
    counts = (config.get(name) for name in _EXPERTS)
    num_mlps = next((count for count in counts if isinstance(count, int) and count > 0), 1)
    size = config.get("moe_intermediate_size") or _number(config, "intermediate_size")
    mlp = num_mlps * 3 * hidden * size
    embedding = _number(config, "vocab_size") * hidden
    copies = 1 if config.get("tie_word_embeddings") else 2
    return layers * (attention + mlp + 2 * hidden) + copies * embedding + hidden, embedding
