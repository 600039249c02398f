"""Finds the folder of a model: a local one, a built-in one, or a hub id in the cache of
huggingface_hub.

The cache is read by its published layout (models--org--name/{refs,blobs,snapshots}), so a cached
model needs neither network nor library. Only a missing model is downloaded.
"""

import importlib.util
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pagewire_shared.errors import StartupError

DEFAULT_REVISION: Final = "main"
_TEXT_PATTERNS: Final = ("*.json", "*.model", "*.txt", "*.jinja")
_WEIGHTS: Final = "*.safetensors"

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?(@[\w./-]+)?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_OFFLINE_VALUES = {"1", "true", "yes", "on"}

_logger = logging.getLogger(__name__)


def resolve_model(
    model: str,
    environ: Mapping[str, str] = os.environ,
    *,
    has_weights: bool,
    revision: str = "",
    cache: Path | None = None,
    setting: str = "model",
) -> Path:
    """Return the folder of `model`. Raises StartupError when it cannot be found or downloaded.

    Args:
        model: A folder, a built-in model's name, or a hub id such as "org/name" with an optional
            "@revision": a branch, tag or commit.
        environ: HF_HUB_CACHE, HF_HOME, HF_HUB_OFFLINE.
        has_weights: Whether weights are needed, or only tokenizer and configuration.
        revision: Branch, tag or commit of a hub id that names none.
        cache: Folder of the hub cache in place of the one that `environ` names.
        setting: Name of the setting that `model` comes from, for errors.
    """
    folder = Path(model).expanduser()
    local = folder.resolve() if folder.is_dir() else builtin_folder(model)
    if local is not None and revision:
        name = "revision" if setting == "model" else f"{setting}_revision"
        flag = name.replace("_", "-")
        raise StartupError(f"--{flag}: {model} is a folder, without revisions", field=name)
    if local is not None:
        return local
    if folder.suffix == ".gguf" and folder.is_file():
        raise StartupError(
            f"--{setting}: {model} is a GGUF file: pagewire serve takes it, and pagewire convert"
            f" --keep-blocks {model} OUT makes a folder of it for one role",
            field=setting,
        )
    if not is_hub_id(model):
        raise StartupError(f"--{setting}: there is no folder {model}", field=setting)
    hub_id, _, own_revision = model.partition("@")
    revision = own_revision or revision or DEFAULT_REVISION
    cache = cache or cache_folder(environ)
    # A tokenizer of its own often comes without a config.json.
    needs = "config.json" if setting == "model" else "tokenizer*"
    found = find_snapshot(cache, hub_id, revision, has_weights=has_weights, needs=needs)
    if found is None and is_offline(environ):
        raise StartupError(
            f"--{setting}: {model} is neither a folder nor in the cache "
            f"{cache}, and HF_HUB_OFFLINE is set",
            field=setting,
        )
    found = found or _download(hub_id, revision, cache, setting, has_weights=has_weights)
    if found.name != revision and _COMMIT.fullmatch(found.name):
        # A branch moves; the line says how to get the same files again.
        _logger.info(
            "%s at %s is commit %s; pin it with %s@%s",
            *(hub_id, revision, found.name, hub_id, found.name),
        )
    return found


def is_offline(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether nothing may be downloaded."""
    return environ.get("HF_HUB_OFFLINE", "").lower() in _OFFLINE_VALUES


def is_hub_id(model: str) -> bool:
    """Whether `model` could be a hub id such as org/name or org/name@revision."""
    return _HUB_ID.fullmatch(model) is not None


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of the hub cache."""
    if environ.get("HF_HUB_CACHE"):
        return Path(environ["HF_HUB_CACHE"]).expanduser()
    home = environ.get("HF_HOME")
    if not home:
        home = str(Path(environ.get("XDG_CACHE_HOME", "~/.cache")) / "huggingface")
    return Path(home).expanduser() / "hub"


def find_snapshot(
    cache: Path, hub_id: str, revision: str, *, has_weights: bool, needs: str = "config.json"
) -> Path | None:
    """Return the cached snapshot of a branch, tag or commit; None when it is not complete."""
    repository = cache / ("models--" + hub_id.replace("/", "--"))
    reference = repository / "refs" / revision
    commit = reference.read_text().strip() if reference.is_file() else revision
    snapshot = repository / "snapshots" / commit
    is_there = any(snapshot.glob(needs))
    if has_weights:
        is_there = is_there and any(snapshot.glob(_WEIGHTS))
    return snapshot if is_there else None


def _download(hub_id: str, revision: str, cache: Path, setting: str, *, has_weights: bool) -> Path:
    from httpx import HTTPError
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    patterns = [*_TEXT_PATTERNS, *([_WEIGHTS] if has_weights else ())]
    try:
        return Path(
            snapshot_download(hub_id, revision=revision, cache_dir=cache, allow_patterns=patterns)
        )
    except (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        HTTPError,
        OSError,
    ) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise StartupError(
            f"--{setting}: {hub_id}@{revision} is neither a folder nor cached, and cannot be"
            f" downloaded: {reason}",
            field=setting,
        ) from error


BUILTIN_NAME = "pagewire-builtin"
# The default model of `pagewire serve`, and a smaller model with the same tokens.
BUILTIN_NAMES = {BUILTIN_NAME: "builtin_model", f"{BUILTIN_NAME}-draft": "builtin_draft"}


def builtin_folder(name: str) -> Path | None:
    """Return the folder of a built-in model; None for any other name, or when the installation
    leaves it out."""
    if name not in BUILTIN_NAMES:
        return None
    # Looked up, not imported: this package must not import `pagewire`.
    spec = importlib.util.find_spec("pagewire")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / BUILTIN_NAMES[name]
    return folder if folder.is_dir() else None
