"""Settings of a model's files, the same for frontend and worker, and the folders they lead to."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pagewire_shared.errors import StartupError
from pagewire_shared.identity.model_folder import resolve_model
from pagewire_shared.process.settings import ProcessConfig, setting


def json_object(text: str) -> str:
    """Return a JSON object in canonical form; "" stays "". Raises StartupError."""
    if not text:
        return ""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StartupError(f"{text[:100]!r} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise StartupError(f"{text[:100]!r} is not a JSON object")
    return json.dumps(value, sort_keys=True) if value else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFilesConfig(ProcessConfig):
    """Settings of the roles that read files of a model; they must agree between the roles."""

    tokenizer: str = setting("", "Folder or hub id of a tokenizer other than the model's")
    tokenizer_revision: str = setting("", "Branch, tag or commit of the tokenizer on the hub")
    revision: str = setting("", "Branch, tag or commit of the model on the hub (default: main)")
    download_dir: str = setting(
        "", "Folder for downloads from the hub, and where they are looked for"
    )
    hf_overrides: str = setting(
        "", "JSON object of values that replace those of config.json", parse=json_object
    )


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Folders of one model.

    Attributes:
        folder: Holds config.json, and the weights where they were asked for.
        tokenizer_folder: Holds the tokenizer and its chat template.
        overrides: Values in place of those of config.json.
    """

    folder: Path
    tokenizer_folder: Path
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_folder(cls, folder: Path) -> "ModelFiles":
        """Return the files of a model that is all in one folder."""
        return cls(folder, folder)


def find_files(config: ModelFilesConfig, model: str, *, has_weights: bool) -> ModelFiles:
    """Return the folders of `model`, a folder or hub id. Raises StartupError naming the setting."""
    cache = Path(config.download_dir).expanduser() if config.download_dir else None
    folder = resolve_model(model, has_weights=has_weights, revision=config.revision, cache=cache)
    tokenizer_folder = folder
    if config.tokenizer or config.tokenizer_revision:
        tokenizer_folder = resolve_model(
            config.tokenizer or model,
            has_weights=False,
            revision=config.tokenizer_revision,
            cache=cache,
            setting="tokenizer",
        )
    overrides = json.loads(config.hf_overrides) if config.hf_overrides else {}
    return ModelFiles(folder, tokenizer_folder, overrides)


def overridden(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of config.json with `overrides`, which replace values by name.

    The configuration of a part, such as text_config, keeps the values that are not named.
    """
    merged = dict(config)
    for name, value in overrides.items():
        own = merged.get(name)
        is_part = name.endswith("_config") and isinstance(value, dict) and isinstance(own, dict)
        merged[name] = overridden(own, value) if is_part else value  # type: ignore[arg-type]
    return merged


def override_bytes(overrides: Mapping[str, Any]) -> bytes:
    """Return the bytes of `overrides` for a fingerprint; empty without any."""
    if not overrides:
        return b""
    return b"hf_overrides " + json.dumps(overrides, sort_keys=True).encode()
