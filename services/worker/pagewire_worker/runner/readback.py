"""Copies the sampled tokens of a step to the host while the next step runs."""

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from pagewire_shared.errors import PagewireError
from pagewire_worker.backend.sampled_tokens import SampledTokens, TokenLogprobs


@dataclass
class DeviceLostError(PagewireError):
    """The device failed during a step: its memory is not valid any more, the process must end."""

    code: str = "device_lost"


class DeviceEvent(Protocol):
    """A point in the work queue of a device; safe to use from any thread."""

    def query(self) -> bool:
        """Return whether the device has reached the point."""
        ...

    def synchronize(self) -> None:
        """Wait for the point. Raises RuntimeError when the device failed before it."""
        ...


@dataclass(frozen=True, slots=True)
class HostCopy:
    """Sampled tokens of a step in host memory.

    Attributes:
        sampled: Valid once `event` is reached.
        event: None if `sampled` is valid already.
    """

    sampled: SampledTokens
    event: DeviceEvent | None = None


class Readback(Protocol):
    """Copies sampled tokens from a device to the host."""

    def start(self, sampled: SampledTokens) -> HostCopy:
        """Begin to copy the results of the work that was enqueued so far."""
        ...

    def is_lost(self) -> bool:
        """Return whether the device has failed; waits for its work."""
        ...


class HostReadback:
    """Readback for a CPU, where a launched step is already computed."""

    def start(self, sampled: SampledTokens) -> HostCopy:
        """Return `sampled` as it is."""
        return HostCopy(sampled)

    def is_lost(self) -> bool:
        """Return False: a CPU is never lost."""
        return False


class CudaReadback:
    """Copies to pinned memory, on the stream that computes: that stream waits for nothing."""

    def start(self, sampled: SampledTokens) -> HostCopy:
        """Enqueue the copies, and an event behind them."""
        logprobs = sampled.logprobs
        token_ids, faults, kv_faults = _pinned_together(
            sampled.token_ids, sampled.faults, sampled.kv_faults
        )
        copied = SampledTokens(token_ids, logprobs and _pinned_of(logprobs), faults, kv_faults)
        # A thread that waits for a blocking event sleeps; otherwise it would spin on a core.
        event = torch.cuda.Event(blocking=True)
        event.record()
        return HostCopy(copied, event)

    def is_lost(self) -> bool:
        """Return whether the device has failed: errors of kernels are permanent."""
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            return True
        return False


def make_readback(device: torch.device) -> Readback:
    """Return the readback that `device` needs."""
    return CudaReadback() if device.type == "cuda" else HostReadback()


def _pinned_of(found: TokenLogprobs) -> TokenLogprobs:
    return replace(
        found,
        logprobs=_to_pinned(found.logprobs),
        ranks=_to_pinned(found.ranks),
        top_ids=None if found.top_ids is None else _to_pinned(found.top_ids),
        top_logprobs=None if found.top_logprobs is None else _to_pinned(found.top_logprobs),
    )


def _pinned_together(
    token_ids: Tensor, faults: Tensor | None, kv_faults: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Copy all three, by one copy where they are of one size, as in steps of decodes."""
    if faults is None or kv_faults is None or token_ids.shape != kv_faults.shape:
        faults = None if faults is None else _to_pinned(faults)
        return _to_pinned(token_ids), faults, None if kv_faults is None else _to_pinned(kv_faults)
    rows = _to_pinned(torch.stack((token_ids, faults, kv_faults)))
    return rows[0], rows[1], rows[2]


def _to_pinned(tensor: Tensor) -> Tensor:
    pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return pinned.copy_(tensor, non_blocking=True)
