"""What a step sampled on its way to the host, while the next step already runs."""

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from pagewire_shared.errors import PagewireError
from pagewire_worker.backend.sampled_tokens import SampledTokens, TokenLogprobs


@dataclass
class DeviceLostError(PagewireError):
    """The device failed with work under way: nothing on it can be trusted, the process must end."""

    code: str = "device_lost"


class DeviceEvent(Protocol):
    """A point in the work of a device; any thread may ask."""

    def query(self) -> bool:
        """Return whether the device has come so far."""
        ...

    def synchronize(self) -> None:
        """Wait until it has. Raises RuntimeError when the device failed before."""
        ...


@dataclass(frozen=True, slots=True)
class HostCopy:
    """What a step sampled, in the memory of the host.

    Attributes:
        sampled: Holds once `event` has come.
        event: None where it holds already.
    """

    sampled: SampledTokens
    event: DeviceEvent | None = None


class Readback(Protocol):
    """Copies from a device to the host."""

    def start(self, sampled: SampledTokens) -> HostCopy:
        """Begin to copy what the work enqueued so far will have sampled."""
        ...

    def is_lost(self) -> bool:
        """Return whether the device does not work any more; waits for it."""
        ...


class HostReadback:
    """Of a device that is the host, and has computed what it was told to."""

    def start(self, sampled: SampledTokens) -> HostCopy:
        """Return `sampled` as it is."""
        return HostCopy(sampled)

    def is_lost(self) -> bool:
        """Return that it is there."""
        return False


class CudaReadback:
    """Copies to pinned memory on the stream that computes: nothing waits for them there."""

    def start(self, sampled: SampledTokens) -> HostCopy:
        """Enqueue the copies, and an event behind them."""
        logprobs = sampled.logprobs
        copied = SampledTokens(
            _to_pinned(sampled.token_ids),
            logprobs and _pinned_of(logprobs),
            None if sampled.faults is None else _to_pinned(sampled.faults),
            None if sampled.kv_faults is None else _to_pinned(sampled.kv_faults),
        )
        # Whoever waits for it sleeps; otherwise a core would spin.
        event = torch.cuda.Event(blocking=True)
        event.record()
        return HostCopy(copied, event)

    def is_lost(self) -> bool:
        """Return whether the device does not work any more: errors of kernels stay for good."""
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            return True
        return False


def make_readback(device: torch.device) -> Readback:
    """Return that of `device`."""
    return CudaReadback() if device.type == "cuda" else HostReadback()


def _pinned_of(found: TokenLogprobs) -> TokenLogprobs:
    return replace(
        found,
        logprobs=_to_pinned(found.logprobs),
        ranks=_to_pinned(found.ranks),
        top_ids=None if found.top_ids is None else _to_pinned(found.top_ids),
        top_logprobs=None if found.top_logprobs is None else _to_pinned(found.top_logprobs),
    )


def _to_pinned(tensor: Tensor) -> Tensor:
    pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return pinned.copy_(tensor, non_blocking=True)
