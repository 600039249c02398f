"""Finds the folder of a model: a local one, or a hub id in the cache of huggingface_hub.

The cache is read by its published layout (models--org--name/{refs,blobs,snapshots}), so that a
cached model needs neither network nor library; only one that is not there is downloaded.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from pagewire_shared.builtin_models import builtin_folder
from pagewire_shared.errors import StartupError

DEFAULT_REVISION = "main"
DOWNLOAD_PATTERNS = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_OFFLINE_VALUES = {"1", "true", "yes", "on"}


def resolve_model(model: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of `model`. Raises StartupError when there is none.

    Args:
        model: A folder, a built-in model's name, or a hub id such as "org/name" with an optional
            "@revision".
        environ: HF_HUB_CACHE, HF_HOME, HF_HUB_OFFLINE.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder
    if (builtin := builtin_folder(model)) is not None:
        return builtin
    hub_id, _, revision = model.partition("@")
    if model.startswith(("/", ".", "~")) or not _HUB_ID.fullmatch(hub_id):
        raise StartupError(f"--model: there is no folder {model}", field="model")
    cached = find_snapshot(cache_folder(environ), hub_id, revision or DEFAULT_REVISION)
    if cached is not None:
        return cached
    if environ.get("HF_HUB_OFFLINE", "").lower() in _OFFLINE_VALUES:
        raise StartupError(
            f"--model: {model} is neither a folder nor in the cache "
            f"{cache_folder(environ)}, and HF_HUB_OFFLINE is set",
            field="model",
        )
    return _download(hub_id, revision or DEFAULT_REVISION, cache_folder(environ))


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of the hub cache."""
    if "HF_HUB_CACHE" in environ:
        return Path(environ["HF_HUB_CACHE"]).expanduser()
    home = environ.get("HF_HOME")
    if home is None:
        home = str(Path(environ.get("XDG_CACHE_HOME", "~/.cache")) / "huggingface")
    return Path(home).expanduser() / "hub"


def find_snapshot(cache: Path, hub_id: str, revision: str) -> Path | None:
    """Return the cached snapshot of a branch, tag or commit; None when it is not complete."""
    repository = cache / ("models--" + hub_id.replace("/", "--"))
    reference = repository / "refs" / revision
    commit = reference.read_text().strip() if reference.is_file() else revision
    snapshot = repository / "snapshots" / commit
    is_there = (snapshot / "config.json").is_file() and any(snapshot.glob("*.safetensors"))
    return snapshot if is_there else None


def _download(hub_id: str, revision: str, cache: Path) -> Path:
    from httpx import HTTPError
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(
                hub_id,
                revision=revision,
                cache_dir=cache,
                allow_patterns=list(DOWNLOAD_PATTERNS),
            )
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
            f"--model: {hub_id} is neither a folder nor cached, and cannot be downloaded: {reason}",
            field="model",
        ) from error
