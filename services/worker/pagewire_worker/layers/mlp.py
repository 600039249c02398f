"""The gated MLP (SwiGLU; Shazeer, 2020), with gate and up projections merged into one matrix."""

from torch import Tensor
from torch.nn import functional

from pagewire_worker.layers.linear import Linear


class GatedMlp:
    """down(silu(gate(x)) * up(x))."""

    __slots__ = ("_down", "_gate_up")

    def __init__(self, gate_up: Linear, down: Linear) -> None:
        self._gate_up = gate_up
        self._down = down

    def __call__(self, x: Tensor) -> Tensor:
        """Map [tokens, hidden] to [tokens, hidden]."""
        gate, up = self._gate_up(x).chunk(2, dim=-1)
        return self._down(functional.silu(gate) * up)
