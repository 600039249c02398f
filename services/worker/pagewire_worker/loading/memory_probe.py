"""What is asked of a device about its memory, and how CUDA answers."""

import gc
from dataclasses import dataclass
from typing import Protocol

import torch


@dataclass(frozen=True, slots=True)
class MemoryInUse:
    """Bytes of a device: all there are, those in use by everybody, and this process's part."""

    total: int
    used: int
    own: int


class MemoryProbe(Protocol):
    """Memory of one device."""

    def begin(self) -> None:
        """Watch from here on how much is taken on top of what is taken now."""
        ...

    def peak(self) -> int:
        """Return the most that was taken on top since `begin`, in bytes."""
        ...

    def in_use(self) -> MemoryInUse:
        """Return what is in use once all that is not needed is given back."""
        ...


class CudaProbe:
    """The memory of a CUDA device, as its driver and torch's allocator count it.

    Args:
        device: Which.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._allocated = 0
        self._reserved = 0

    def begin(self) -> None:
        """Watch from here on how much is taken on top of what is taken now."""
        self._give_back()
        torch.cuda.reset_peak_memory_stats(self._device)
        self._allocated = torch.cuda.memory_allocated(self._device)
        self._reserved = torch.cuda.memory_reserved(self._device)

    def peak(self) -> int:
        """Return the most that was taken on top since `begin`, in bytes."""
        torch.cuda.synchronize(self._device)
        allocated = torch.cuda.max_memory_allocated(self._device) - self._allocated
        # Of segments that are partly free the rest is of no use to a cache.
        reserved = torch.cuda.max_memory_reserved(self._device) - self._reserved
        return max(allocated, reserved)

    def in_use(self) -> MemoryInUse:
        """Return what is in use once all that is not needed is given back."""
        self._give_back()
        free, total = torch.cuda.mem_get_info(self._device)
        return MemoryInUse(total, total - free, torch.cuda.memory_reserved(self._device))

    def _give_back(self) -> None:
        # A model may be part of a cycle with the cache that it ran on.
        gc.collect()
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
