"""Where weights come from by `--load-format`: the folder of the checkpoint, or a seed."""

from pathlib import Path

import torch

from pagewire_shared.fingerprint import model_fingerprint
from pagewire_worker.models.source import LoadSettings
from pagewire_worker.random_weights import RandomWeights, random_fingerprint
from pagewire_worker.weights import SafetensorsReader, WeightReader

DUMMY = "dummy"


def open_weights(folder: Path, settings: LoadSettings) -> WeightReader:
    """Return the tensors for the model in `folder`. Raises StartupError where it has none."""
    device, dtype, on_progress = settings.device, settings.dtype, settings.on_progress
    if settings.load_format == DUMMY:
        return RandomWeights(settings.seed, device, dtype, on_progress)
    return SafetensorsReader(folder, device, dtype, on_progress)


def weights_fingerprint(
    folder: Path, load_format: str, seed: int, device: torch.device, dtype: torch.dtype
) -> bytes:
    """Return SHA-256 of configuration and weights, 32 bytes."""
    if load_format == DUMMY:
        config_json = (folder / "config.json").read_bytes()
        return random_fingerprint(config_json, seed, device, dtype)
    return model_fingerprint(folder)
