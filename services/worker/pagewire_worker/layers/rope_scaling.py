"""Scalings of rotary frequencies for longer contexts, as transformers computes them.

Sources: "linear" and "dynamic" are the posts of kaiokendev and bloc97 (2023), "yarn" is Peng et al.
(2023), "longrope" is Ding et al. (2024), "llama3" is that of Llama 3.1.
"""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_worker.families.specs.rope_spec import RopeSpec, yarn_scale

BETA_FAST, BETA_SLOW = 32.0, 1.0
"""Rotations within the first context above which yarn keeps a frequency, and below which it scales
it."""

Scaled = tuple[Tensor, float]
"""Frequencies, float32 [rotary_dim / 2], and a factor of cosines and sines."""


def scaled_frequencies(rope: RopeSpec, num_positions: int) -> Scaled:
    """Return the frequencies of `rope`, and the factor of its cosines and sines.

    Raises StartupError if `num_positions` need other frequencies than the positions before them.
    """
    return SCALINGS[rope.rope_type](rope, num_positions)


def _frequencies(theta: float, size: int) -> Tensor:
    exponents = torch.arange(0, size, 2, dtype=torch.int64).float() / size
    return 1.0 / (theta**exponents)


def _plain(rope: RopeSpec, num_positions: int) -> Scaled:
    return _frequencies(rope.theta, rope.rotary_dim), 1.0


def _linear(rope: RopeSpec, num_positions: int) -> Scaled:
    return _frequencies(rope.theta, rope.rotary_dim) / rope.settings["factor"], 1.0


def _dynamic(rope: RopeSpec, num_positions: int) -> Scaled:
    """The base grows with sequences beyond the context, which are not served."""
    assert num_positions <= rope.max_positions, "a context is at most that of the model"
    return _plain(rope, num_positions)


def _llama3(rope: RopeSpec, num_positions: int) -> Scaled:
    """Long waves are stretched, short ones kept, those between interpolated."""
    frequencies, settings = _frequencies(rope.theta, rope.rotary_dim), rope.settings
    factor, low, high = (
        settings[name] for name in ("factor", "low_freq_factor", "high_freq_factor")
    )
    original = settings["original_max_position_embeddings"]
    wavelengths = 2 * math.pi / frequencies
    stretched = frequencies / factor
    smooth = (original / wavelengths - low) / (high - low)
    between = (1 - smooth) * stretched + smooth * frequencies
    scaled = torch.where(wavelengths > original / low, stretched, between)
    return torch.where(wavelengths < original / high, frequencies, scaled), 1.0


def _yarn(rope: RopeSpec, num_positions: int) -> Scaled:
    """Frequencies that turn often in the first context are kept, slow ones are stretched."""
    settings, size = rope.settings, rope.rotary_dim
    factor, original = settings["factor"], settings["original_max_position_embeddings"]
    kept = _frequencies(rope.theta, size)
    stretched = 1.0 / (factor * rope.theta ** (torch.arange(0, size, 2).float() / size))
    low, high = (
        size * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))
        for turns in (settings.get("beta_fast", BETA_FAST), settings.get("beta_slow", BETA_SLOW))
    )
    if settings["truncate"]:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    width = high - low or 0.001
    part_kept = 1 - ((torch.arange(size // 2, dtype=torch.float32) - low) / width).clamp(0, 1)
    return stretched * (1 - part_kept) + kept * part_kept, _yarn_factor(settings)


def _yarn_factor(settings: Mapping[str, float]) -> float:
    if "attention_factor" in settings:
        return settings["attention_factor"]
    scales, factor = (settings.get("mscale"), settings.get("mscale_all_dim")), settings["factor"]
    if scales[0] and scales[1]:
        return yarn_scale(factor, scales[0]) / yarn_scale(factor, scales[1])
    return yarn_scale(factor, 1.0)


def _longrope(rope: RopeSpec, num_positions: int) -> Scaled:
    """One of two lists of factors, by the longest context and for all positions.

    transformers changes between them by the length of a sequence, which would not fit the keys that
    are in the cache; vLLM chooses as here.
    """
    settings, original = rope.settings, rope.first_context
    assert original is not None
    name = "short_factor" if num_positions <= original else "long_factor"
    if name not in settings:
        raise StartupError(
            f"--max-model-len: at most {original} without a long_factor in config.json, "
            f"got {num_positions}",
            field="max_model_len",
        )
    factor = settings.get("factor", rope.max_positions / original)
    default = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    stretch = torch.tensor(settings[name], dtype=torch.float32)
    exponents = torch.arange(0, rope.rotary_dim, 2, dtype=torch.int64).float() / rope.rotary_dim
    return 1.0 / (stretch * rope.theta**exponents), settings.get("attention_factor", default)


SCALINGS: Mapping[str, Callable[[RopeSpec, int], Scaled]] = {
    "default": _plain,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
