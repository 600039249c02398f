"""Records work of the device once, to start it again with one call."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

Work = Callable[[], None]


@dataclass(frozen=True, slots=True)
class CapturedWork:
    """Recorded work. A caller that replays it must hold this object, not only `replay`.

    Attributes:
        keep: The work itself, and so every tensor that it reads: a graph knows their addresses
            only, and does not keep them alive.
    """

    replay: Work
    keep: Work


class Capture(Protocol):
    """Records work on tensors whose addresses do not change."""

    def __call__(self, work: Work) -> CapturedWork:
        """Return `work` recorded, after doing it at least once."""
        ...


class CudaCapture:
    """Records CUDA graphs that share scratch memory: no two of them may run at the same time."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Work) -> CapturedWork:
        """Capture `work`."""
        # The first call of a kernel compiles and loads it, and cannot be captured.
        work()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Other threads may allocate pinned memory during the capture.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            work()
        return CapturedWork(graph.replay, work)
