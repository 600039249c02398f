"""Norms over the last dimension, in torch."""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional


class Norm(Protocol):
    """A norm with its weights."""

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise [..., size]."""
        ...


class RmsNorm:
    """x / rms(x) * weight.

    If the weight has the type of `x`, the product is taken after rounding to it; a wider weight is
    multiplied first, and the product is rounded.
    """

    __slots__ = ("_epsilon", "_weight")

    def __init__(self, weight: Tensor, epsilon: float) -> None:
        self._weight = weight
        self._epsilon = epsilon

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise [..., size]."""
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self._epsilon)
        return (self._weight * (wide * scale).to(self._weight.dtype)).to(x.dtype)


class LayerNorm:
    """(x - mean(x)) / deviation(x) * weight + bias, rounded once."""

    __slots__ = ("_bias", "_epsilon", "_weight")

    def __init__(self, weight: Tensor, bias: Tensor, epsilon: float) -> None:
        self._weight = weight
        self._bias = bias
        self._epsilon = epsilon

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise [..., size]."""
        shape = self._weight.shape
        return functional.layer_norm(x, shape, self._weight, self._bias, self._epsilon)
