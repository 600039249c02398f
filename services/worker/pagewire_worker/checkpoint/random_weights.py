"""Random weights of a given shape, drawn from a seed, as vLLM's `--load-format dummy`.

For measurements, where the work of a model counts and its words do not.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor

from pagewire_worker.checkpoint.weights import Shape, stacked

STD = 0.02
BIAS_STD = 0.002
"""Smaller: in a narrow model, biases would drown the part that depends on the input."""

_NORM_SUFFIXES = ("norm.weight", "Norm.weight")


class RandomWeights:
    """A WeightReader that has every tensor, with any name.

    Norms are 1. All else is normal with a deviation of 0.02, biases 0.002. A tensor depends on the
    seed, its name and its shape, not on earlier tensors. It differs between kinds of devices and
    between types.

    Args:
        on_progress: Called at the end only; the number of tensors is not known before.
    """

    def __init__(
        self,
        seed: int,
        device: torch.device,
        dtype: torch.dtype,
        on_progress: Callable[[float], None] = lambda fraction: None,
    ) -> None:
        self._seed = seed
        self._device = device
        self._dtype = dtype
        self._on_progress = on_progress

    def take(self, name: str, shape: Shape) -> Tensor:
        """Return one tensor."""
        return self.take_stacked([(name, shape)])

    def take_stacked(self, parts: Sequence[tuple[str, Shape]]) -> Tensor:
        """Return tensors stacked along their first dimension."""
        return stacked(
            parts, self._device, self._dtype, lambda rows, name, _: self._draw(name, rows)
        )

    @contextmanager
    def borrow(self, name: str, shape: Shape) -> Iterator[Tensor]:
        """Yield one tensor."""
        yield self.take(name, shape)

    def borrow_matrix(self, name: str, shape: Shape) -> AbstractContextManager[Tensor]:
        """Yield one tensor."""
        return self.borrow(name, shape)

    def ignore(self, name: str) -> None:
        """Do nothing: tensors are made on demand."""

    def finish(self) -> None:
        """Report that all tensors are loaded."""
        self._on_progress(1.0)

    def _draw(self, name: str, tensor: Tensor) -> None:
        if name.endswith(_NORM_SUFFIXES):
            tensor.fill_(1.0)
            return
        digest = hashlib.sha256(f"{self._seed} {name}".encode()).digest()
        generator = torch.Generator(self._device)
        generator.manual_seed(int.from_bytes(digest[:8], "little", signed=True))
        std = BIAS_STD if name.endswith(".bias") else STD
        tensor.normal_(0.0, std, generator=generator)


def random_fingerprint(
    config_json: bytes, seed: int, device: torch.device, dtype: torch.dtype
) -> bytes:
    """Return SHA-256 of all facts that decide the tensors of RandomWeights, 32 bytes.

    Generators of GPUs distribute their numbers by the size of the device, so its name is included.
    """
    place = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    facts = f"dummy {seed} {place} {dtype} ".encode()
    return hashlib.sha256(facts + config_json).digest()
