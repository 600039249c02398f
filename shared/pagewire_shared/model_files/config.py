"""Reads config.json as far as it decides whether a model can be served at all."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pagewire_shared.errors import StartupError
from pagewire_shared.model_files.quantization import check_quantization
from pagewire_shared.model_files.text_model import text_settings

_CONTEXT_KEYS: Final = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
_STATEFUL: Final = frozenset(
    {"mamba", "mamba2", "falcon_mamba", "jamba", "rwkv", "recurrent_gemma"}
)
"""Model types whose layers keep a state of their own, for which there are no KV blocks."""
_ALIBI: Final = frozenset({"bloom", "mpt"})


def read_config(folder: Path) -> dict[str, Any]:
    """Return the content of config.json. Raises StartupError when it is missing or broken."""
    path = folder / "config.json"
    if not path.is_file():
        raise StartupError(f"--model: {folder} has no config.json", field="model")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise StartupError(f"--model: {path} is not valid JSON: {error}", field="model") from error
    if not isinstance(data, dict):
        raise StartupError(f"--model: {path} must hold an object", field="model")
    return data


def refuse_unsupported(data: Mapping[str, Any]) -> None:
    """Raise StartupError for a model that no worker can run, whatever its weights are.

    A worker may still refuse a model that passes: it knows what transformers has installed.
    """
    check_quantization(data)
    names = data.get("architectures")
    if not names:
        raise _fault("config.json: architectures is missing")
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise _fault(f"config.json: architectures must be a list of names, got {str(names)[:64]!r}")
    kind = data.get("model_type")
    if kind is not None and not isinstance(kind, str):
        raise _fault(f"config.json: model_type must be a name, got {str(kind)[:64]!r}")
    if data.get("is_encoder_decoder"):
        raise _fault(f"{names[0]} is an encoder-decoder, which is not supported")
    if kind in _STATEFUL:
        raise _fault(f"{names[0]}: its layers keep a state of their own, which has no KV blocks")
    if kind in _ALIBI:
        raise _fault(f"{names[0]} attends with ALiBi, which is not supported")
    text = data.get("text_config")
    if text is None and "vision_config" in data and "hidden_size" not in data:
        raise _fault(f"{names[0]}: config.json has a vision_config and no text_config")
    if text is not None and not isinstance(text, Mapping):
        raise _fault(f"config.json: text_config must be an object, got {str(text)[:64]!r}")


def context_of(data: Mapping[str, Any]) -> int | None:
    """Return the longest sequence in tokens that config.json names, or None."""
    fields = text_settings(data)
    for key in _CONTEXT_KEYS:
        value = fields.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def check_context(max_model_len: int | None, longest: int | None) -> None:
    """Raise StartupError if --max-model-len is more than the context of the model."""
    if max_model_len is not None and longest is not None and max_model_len > longest:
        raise StartupError(
            f"--max-model-len: {max_model_len} is more than the model's context of {longest}",
            field="max_model_len",
        )


def _fault(text: str) -> StartupError:
    return StartupError(f"--model: {text}", field="model")
