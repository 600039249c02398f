"""Root mean square normalisation (Zhang and Sennrich, 2019), computed in float32."""

import torch
from torch import Tensor


class RmsNorm:
    """x / rms(x) * weight over the last dimension.

    The product with the weight is taken after rounding to the type of `x`, as in published models.
    """

    __slots__ = ("_epsilon", "_weight")

    def __init__(self, weight: Tensor, epsilon: float) -> None:
        self._weight = weight
        self._epsilon = epsilon

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise [..., size]."""
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self._epsilon)
        return self._weight * (wide * scale).to(x.dtype)
