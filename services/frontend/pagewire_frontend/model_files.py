"""Finds a model's folder and reads its small JSON files. Never reads weights."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pagewire_shared.builtin_models import builtin_folder
from pagewire_shared.errors import StartupError

_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
# A tokenizer_config.json without a limit says 1e30.
_LARGEST_CONTEXT = 2**31 - 1
_DOWNLOADED = ("*.json", "*.jinja", "*.model")


def find_folder(path: str) -> Path:
    """Return the local folder of `path`: a folder, a built-in model's name, or a hub id in the
    Hugging Face cache layout.

    Raises:
        StartupError: There is neither, and the hub cannot be asked.
    """
    folder = Path(path).expanduser()
    if folder.is_dir():
        return folder.resolve()
    if (builtin := builtin_folder(path)) is not None:
        return builtin
    if not is_hub_id(path):
        raise StartupError(f"model {path}: no such folder", field="model")
    return _cached_snapshot(path) or _download(path)


def is_hub_id(path: str) -> bool:
    """Return whether `path` could be a hub id such as org/name."""
    parts = path.split("/")
    return len(parts) == 2 and all(parts) and not path.startswith((".", "~"))


def _hub_cache() -> Path:
    explicit = os.environ.get("HF_HUB_CACHE")
    if explicit:
        return Path(explicit).expanduser()
    home = os.environ.get("HF_HOME") or "~/.cache/huggingface"
    return Path(home).expanduser() / "hub"


def _cached_snapshot(hub_id: str) -> Path | None:
    repository = _hub_cache() / ("models--" + hub_id.replace("/", "--"))
    reference = repository / "refs" / "main"
    if not reference.is_file():
        return None
    snapshot = repository / "snapshots" / reference.read_text().strip()
    return snapshot if (snapshot / "config.json").is_file() else None


def _download(hub_id: str) -> Path:
    # huggingface_hub comes with tokenizers; it brings no torch.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(hub_id, allow_patterns=list(_DOWNLOADED)))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise StartupError(
            f"model {hub_id}: no such folder, and the hub gave nothing: {error}", field="model"
        ) from error


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
