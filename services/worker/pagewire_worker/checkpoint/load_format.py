"""Opens weights by `--load-format`: from the folder of the checkpoint, or drawn from a seed."""

from collections.abc import Callable
from pathlib import Path

import torch

from pagewire_shared.model_files.config import read_config
from pagewire_shared.model_files.folder import GGUF_INDEX_NAME
from pagewire_worker.backend.source import LoadSettings
from pagewire_worker.checkpoint.digest_cache import DigestCache
from pagewire_worker.checkpoint.fingerprint import ModelFingerprint
from pagewire_worker.checkpoint.gguf.tensors import GgufFormat, GgufTensors
from pagewire_worker.checkpoint.random_weights import RandomWeights, random_fingerprint
from pagewire_worker.checkpoint.stored.formats import stored_format
from pagewire_worker.checkpoint.stored.reader import StoredReader
from pagewire_worker.checkpoint.tensor_names import PlaceFinder
from pagewire_worker.checkpoint.weights import SafetensorsReader, WeightReader
from pagewire_worker.host.kept_facts import cache_folder

DUMMY = "dummy"


def open_weights(
    folder: Path, settings: LoadSettings, names: PlaceFinder | None = None
) -> WeightReader:
    """Return the tensors for the model in `folder`. Raises StartupError if it has no weights.

    Args:
        names: Finds tensors that are stored under other names, or in others; None for none.
    """
    device, dtype, on_progress = settings.device, settings.dtype, settings.on_progress
    if settings.load_format == DUMMY:
        return RandomWeights(settings.seed, device, dtype, on_progress)
    if (folder / GGUF_INDEX_NAME).is_file():
        blocks = GgufTensors(folder, on_progress)
        return StoredReader(blocks, GgufFormat(blocks), device, dtype)
    tensors = SafetensorsReader(folder, device, dtype, on_progress, names=names)
    stored = stored_format(read_config(folder))
    return tensors if stored is None else StoredReader(tensors, stored, device, dtype)


def weights_fingerprint(
    folder: Path,
    load_format: str,
    seed: int,
    device: torch.device,
    dtype: torch.dtype,
    overrides: bytes = b"",
) -> Callable[[], bytes]:
    """Begin the fingerprint of configuration and weights; return a function that waits for it.

    `overrides` are the bytes of values in place of those of config.json. The function returns 32
    bytes. Raises StartupError for a file of weights that is truncated or
    not a safetensors file.
    """
    if load_format == DUMMY:
        config_json = overrides + (folder / "config.json").read_bytes()
        fingerprint = random_fingerprint(config_json, seed, device, dtype)
        return lambda: fingerprint
    return ModelFingerprint(folder, DigestCache(cache_folder()), overrides).result
