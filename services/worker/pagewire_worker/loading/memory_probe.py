"""Measures the memory of a device; implemented for CUDA."""

import gc
from dataclasses import dataclass
from typing import Protocol

import torch


@dataclass(frozen=True, slots=True)
class MemoryInUse:
    """Bytes of a device: total, in use by all processes, and in use by this process."""

    total: int
    used: int
    own: int


class MemoryProbe(Protocol):
    """Measures the memory of one device."""

    def begin(self) -> None:
        """Start to measure the memory taken on top of the present use."""
        ...

    def peak(self) -> int:
        """Return the peak of that memory since `begin`, in bytes."""
        ...

    def in_use(self) -> MemoryInUse:
        """Return the memory in use, after all unused memory was given back."""
        ...


class CudaProbe:
    """Measures a CUDA device through its driver and torch's allocator."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._allocated = 0
        self._reserved = 0

    def begin(self) -> None:
        """Start to measure the memory taken on top of the present use."""
        self._give_back()
        torch.cuda.reset_peak_memory_stats(self._device)
        self._allocated = torch.cuda.memory_allocated(self._device)
        self._reserved = torch.cuda.memory_reserved(self._device)

    def peak(self) -> int:
        """Return the peak of that memory since `begin`, in bytes."""
        torch.cuda.synchronize(self._device)
        allocated = torch.cuda.max_memory_allocated(self._device) - self._allocated
        # A cache cannot use the free rest of segments that are partly in use.
        reserved = torch.cuda.max_memory_reserved(self._device) - self._reserved
        return max(allocated, reserved)

    def in_use(self) -> MemoryInUse:
        """Return the memory in use, after all unused memory was given back."""
        self._give_back()
        free, total = torch.cuda.mem_get_info(self._device)
        return MemoryInUse(total, total - free, torch.cuda.memory_reserved(self._device))

    def _give_back(self) -> None:
        # A model may be in a reference cycle with the cache that it ran on.
        gc.collect()
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
