"""Streams, events and pinned memory of a CUDA device for copies of blocks."""

import logging
from collections.abc import Callable
from typing import Protocol, SupportsInt, cast

import torch
from torch import Tensor

from pagewire_worker.kv.device_copies import CopyEvent, DeviceCopies, ImmediateCopies, Work
from pagewire_worker.kv.stream_copies import Stream, StreamCopies

_logger = logging.getLogger(__name__)

_PORTABLE = 1
"""cudaHostRegisterPortable: pinned for all contexts."""


def make_copies(device: torch.device, compute: torch.cuda.Stream | None = None) -> DeviceCopies:
    """Return the implementation that copies blocks on `device`.

    Args:
        compute: Stream that steps are enqueued on; None for the current one of this thread.
    """
    if device.type != "cuda":
        return ImmediateCopies()
    return StreamCopies(CudaStreams(device, compute), pin_memory)


class CudaStreams:
    """Streams of one device; see CopyStreams.

    Args:
        compute: See make_copies.
    """

    def __init__(self, device: torch.device, compute: torch.cuda.Stream | None = None) -> None:
        self._streams = {
            Stream.COMPUTE: torch.cuda.current_stream(device) if compute is None else compute,
            Stream.OUT: torch.cuda.Stream(device),
            Stream.IN: torch.cuda.Stream(device),
        }

    def enqueue(self, stream: Stream, work: Work) -> None:
        """Call `work` with `stream` as the current one."""
        with torch.cuda.stream(self._streams[stream]):
            work()

    def record(self, stream: Stream) -> CopyEvent:
        """Return an event that is reached when all work enqueued so far is done."""
        # A thread that waits for a blocking event sleeps; otherwise it would spin on a core.
        event = torch.cuda.Event(blocking=True)
        event.record(self._streams[stream])
        return event

    def wait(self, stream: Stream, event: CopyEvent) -> None:
        """Let work that is enqueued later begin after the event."""
        assert isinstance(event, torch.cuda.Event)
        self._streams[stream].wait_event(event)


class Runtime(Protocol):
    """The used part of torch.cuda.cudart(); both calls return an error code, 0 for success."""

    def cudaHostRegister(self, address: int, num_bytes: int, flags: int) -> SupportsInt:
        """Pin memory."""
        ...

    def cudaHostUnregister(self, address: int) -> SupportsInt:
        """Unpin memory."""
        ...


def pin_memory(memory: Tensor, runtime: Runtime | None = None) -> Callable[[], None]:
    """Pin existing host memory, uint8 [bytes], and return a function that unpins it.

    Memory that cannot be pinned is a warning: copies to and from it then wait for the device. Call
    this in a thread that launches nothing, since a launch would find the runtime's last error.

    Args:
        runtime: The CUDA runtime; torch's by default.
    """
    runtime = cast(Runtime, torch.cuda.cudart()) if runtime is None else runtime
    address, num_bytes = memory.data_ptr(), memory.numel()
    code = int(runtime.cudaHostRegister(address, num_bytes, _PORTABLE))
    if code:
        _logger.warning(
            "%d bytes of staging memory cannot be pinned (CUDA error %d): copies of blocks to other"
            " workers hold up steps; raise the limit of locked memory (ulimit -l) or lower"
            " --kv-staging-memory",
            num_bytes,
            code,
        )
        return _nothing

    def unpin() -> None:
        code = int(runtime.cudaHostUnregister(address))
        if code:
            _logger.warning("staging memory stays pinned (CUDA error %d)", code)

    return unpin


def _nothing() -> None:
    pass
