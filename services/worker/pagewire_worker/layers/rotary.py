"""Rotary position embedding (Su et al., 2021) with the scalings "linear" and "llama3".

Cosines and sines of all positions are computed once in float32; a step only gathers their rows.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pagewire_worker.checkpoint.model_config import RopeConfig


@dataclass(frozen=True, slots=True)
class Rotation:
    """Cosines and sines of one step, each [tokens, 1, head_dim], of the model's type."""

    cosines: Tensor
    sines: Tensor

    def rotate(self, x: Tensor) -> Tensor:
        """Rotate [tokens, heads, head_dim]; dimension i is paired with i + head_dim / 2."""
        first, second = x.chunk(2, dim=-1)
        return x * self.cosines + torch.cat((-second, first), dim=-1) * self.sines


class RotaryTable:
    """Cosines and sines of every position of the context."""

    def __init__(
        self,
        *,
        rope: RopeConfig,
        head_dim: int,
        num_positions: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        angles = rotary_angles(rope, head_dim, num_positions)
        angles = torch.cat((angles, angles), dim=-1)
        self._cosines = angles.cos().to(device, dtype)
        self._sines = angles.sin().to(device, dtype)

    def at(self, positions: Tensor) -> Rotation:
        """Return the rotation of `positions` [tokens]."""
        return Rotation(
            self._cosines.index_select(0, positions).unsqueeze(1),
            self._sines.index_select(0, positions).unsqueeze(1),
        )


def rotary_angles(rope: RopeConfig, head_dim: int, num_positions: int) -> Tensor:
    """Return the angles of the first positions, float32 [num_positions, head_dim / 2]."""
    frequencies = SCALINGS[rope.rope_type](_frequencies(rope.theta, head_dim), rope.factors)
    return torch.outer(torch.arange(num_positions, dtype=torch.float32), frequencies)


def _frequencies(theta: float, head_dim: int) -> Tensor:
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    return 1.0 / (theta**exponents)


def _scale_nothing(frequencies: Tensor, factors: Mapping[str, float]) -> Tensor:
    return frequencies


def _scale_linearly(frequencies: Tensor, factors: Mapping[str, float]) -> Tensor:
    return frequencies / factors["factor"]


def _scale_llama3(frequencies: Tensor, factors: Mapping[str, float]) -> Tensor:
    """Llama 3.1: long waves are stretched, short ones kept, those between interpolated."""
    factor, low, high = factors["factor"], factors["low_freq_factor"], factors["high_freq_factor"]
    original = factors["original_max_position_embeddings"]
    wavelengths = 2 * math.pi / frequencies
    stretched = frequencies / factor
    smooth = (original / wavelengths - low) / (high - low)
    between = (1 - smooth) * stretched + smooth * frequencies
    scaled = torch.where(wavelengths > original / low, stretched, between)
    return torch.where(wavelengths < original / high, frequencies, scaled)


SCALINGS: Mapping[str, Callable[[Tensor, Mapping[str, float]], Tensor]] = {
    "default": _scale_nothing,
    "linear": _scale_linearly,
    "llama3": _scale_llama3,
}
