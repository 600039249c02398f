"""Work of the device that is recorded once and started again with one call."""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

Work = Callable[[], None]


@dataclass(frozen=True, slots=True)
class CapturedWork:
    """Work that was recorded. Whoever replays it has to hold this, and not `replay` alone.

    Attributes:
        replay: Does the work again.
        keep: The work itself, and with it every tensor that it reads: a graph knows their
            addresses, and does not keep them from being freed.
    """

    replay: Work
    keep: Work


class Capture(Protocol):
    """Records work on tensors that stay where they are."""

    def __call__(self, work: Work) -> CapturedWork:
        """Return `work` recorded; it was done once or more by then."""
        ...


class CudaCapture:
    """CUDA graphs that share their scratch memory: no two of them run at the same time."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Work) -> CapturedWork:
        """Capture `work`."""
        # Kernels are compiled and loaded by their first call, which cannot be captured.
        work()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Other threads may allocate pinned memory meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            work()
        return CapturedWork(graph.replay, work)


class NoCapture:
    """Does the work anew each time, where there are no graphs. As a graph it keeps nothing alive: a
    replay fails once the work is gone.

    Args:
        scratch: Memory that may hold anything when the work begins: NaN is written there.
    """

    def __init__(self, scratch: Sequence[Tensor] = ()) -> None:
        self._scratch = tuple(scratch)

    def __call__(self, work: Work) -> CapturedWork:
        """Do `work` once and return it."""
        work()
        seen, scratch = weakref.ref(work), self._scratch

        def replay() -> None:
            kept = seen()
            if kept is None:
                raise ReferenceError("what was captured is gone, and its memory is others'")
            for memory in scratch:
                memory.fill_(float("nan"))
            kept()

        return CapturedWork(replay, work)
