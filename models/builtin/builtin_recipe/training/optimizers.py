"""Muon for the matrices and AdamW for the rest, with one learning-rate factor for both; it knows no
schedule.
"""

import math
from typing import Any, Final

import torch
from torch import Tensor, nn

from builtin_recipe.model.network import Decoder

# Coefficients of five Newton-Schulz steps that differ per step and so converge faster than one
# fixed quintic (Polar Express, arXiv:2505.16932).
_NEWTON_SCHULZ: Final = (
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
)


def orthogonalized(update: Tensor) -> Tensor:
    """Return the nearest orthogonal matrices of `update` [count, rows, columns], approximately."""
    is_tall = update.shape[1] > update.shape[2]
    x = update.transpose(1, 2) if is_tall else update
    x = (x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)).bfloat16()
    for a, b, c in _NEWTON_SCHULZ:
        gram = x @ x.transpose(1, 2)
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    result: Tensor = x.transpose(1, 2) if is_tall else x
    return result.float()


class Muon:
    """Momentum with orthogonalized updates (Keller Jordan, 2024), matrices of one shape batched."""

    def __init__(
        self, matrices: list[nn.Parameter], rate: float, momentum: float, weight_decay: float
    ) -> None:
        self._rate, self._momentum, self._weight_decay = rate, momentum, weight_decay
        self._groups: dict[tuple[int, ...], list[nn.Parameter]] = {}
        for matrix in matrices:
            self._groups.setdefault(tuple(matrix.shape), []).append(matrix)
        self._buffers = {
            shape: torch.zeros(len(group), *shape, device=group[0].device)
            for shape, group in self._groups.items()
        }

    def state(self) -> list[Tensor]:
        """Return the momentum of every group."""
        return list(self._buffers.values())

    def restore(self, state: list[Tensor]) -> None:
        """Copy the momentum back; groups come in the order of the network's parameters."""
        for buffer, saved in zip(self._buffers.values(), state, strict=True):
            buffer.copy_(saved)

    @torch.no_grad()
    def step(self, factor: float) -> None:
        """Apply the gradients at `factor` times the base rate."""
        rate = self._rate * factor
        for shape, group in self._groups.items():
            grads = torch.stack([self._grad(matrix) for matrix in group])
            buffer = self._buffers[shape]
            buffer.lerp_(grads, 1 - self._momentum)
            updates = orthogonalized(grads.lerp(buffer, self._momentum))  # Nesterov
            scale = math.sqrt(max(1.0, shape[0] / shape[1]))
            for matrix, update in zip(group, updates, strict=True):
                matrix.mul_(1 - rate * self._weight_decay)
                matrix.add_(update, alpha=-rate * scale)

    @staticmethod
    def _grad(matrix: nn.Parameter) -> Tensor:
        assert matrix.grad is not None
        return matrix.grad


class Optimizers:
    """Both optimizers of a network behind one `step`."""

    def __init__(self, network: Decoder, muon_rate: float, adam_rate: float) -> None:
        named = list(network.named_parameters())
        matrices = [p for name, p in named if p.ndim == 2 and not name.startswith("embed")]
        others = [p for name, p in named if p.ndim != 2 or name.startswith("embed")]
        self._muon = Muon(matrices, muon_rate, momentum=0.95, weight_decay=0.01)
        self._adam = torch.optim.AdamW(others, lr=adam_rate, betas=(0.9, 0.95), weight_decay=0.0)
        self._adam_rate = adam_rate
        self._network = network

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs to go on exactly."""
        return {"muon": self._muon.state(), "adam": self._adam.state_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`, which belongs to a network of the same shape."""
        self._muon.restore(state["muon"])
        self._adam.load_state_dict(state["adam"])

    def step(self, factor: float) -> None:
        """Apply the gradients at `factor` times the base rates and clear them."""
        for group in self._adam.param_groups:
            group["lr"] = self._adam_rate * factor
        self._muon.step(factor)
        self._adam.step()
        self._network.zero_grad(set_to_none=True)
