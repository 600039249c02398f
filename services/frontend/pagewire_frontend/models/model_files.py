"""Reads the small JSON files of a model's folder, never the weights."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pagewire_shared.errors import StartupError

_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
# A tokenizer_config.json without a limit has 1e30.
_LARGEST_CONTEXT = 2**31 - 1


def read_json(path: Path, *, is_required: bool = False) -> dict[str, Any]:
    """Return a JSON object; empty when the file is missing. Raises StartupError."""
    if not path.is_file():
        if is_required:
            raise StartupError(f"model {path.parent}: no {path.name}", field="model")
        return {}
    try:
        data = json.loads(path.read_text())
    except ValueError as error:
        raise StartupError(f"{path} is no JSON: {error}", field="model") from error
    if not isinstance(data, dict):
        raise StartupError(f"{path} holds no JSON object", field="model")
    return data


def context_length(config: Mapping[str, Any], tokenizer_config: Mapping[str, Any]) -> int | None:
    """Return the longest sequence in tokens that the model's files name, or None."""
    text_config = config.get("text_config")
    for source in (config, text_config if isinstance(text_config, dict) else {}):
        for key in _CONTEXT_KEYS:
            if isinstance(source.get(key), int):
                return int(source[key])
    limit = tokenizer_config.get("model_max_length")
    if isinstance(limit, int) and 0 < limit <= _LARGEST_CONTEXT:
        return limit
    return None


def vocab_size(config: Mapping[str, Any]) -> int | None:
    """Return the number of rows of the model's embedding, or None."""
    for source in (config, config.get("text_config") or {}):
        if isinstance(source.get("vocab_size"), int):
            return int(source["vocab_size"])
    return None


def as_ids(value: Any) -> list[int]:
    """Return the ids of a JSON value that is an id, a list of ids or nothing."""
    values = value if isinstance(value, list) else [value]
    return [item for item in values if isinstance(item, int) and not isinstance(item, bool)]
