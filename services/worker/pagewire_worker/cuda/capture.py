"""Work of the device that is recorded once and started again with one call."""

from collections.abc import Callable
from typing import Protocol

import torch

Work = Callable[[], None]


class Capture(Protocol):
    """Records work on tensors that stay where they are."""

    def __call__(self, work: Work) -> Work:
        """Return a function that does `work` again, which was done once or more by then."""
        ...


class CudaCapture:
    """CUDA graphs that share their scratch memory: no two of them run at the same time."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Work) -> Work:
        """Capture `work`."""
        # Kernels are compiled and loaded by their first call, which cannot be captured.
        work()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Other threads may allocate pinned memory meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            work()
        return graph.replay


class NoCapture:
    """Does the work anew each time, where there are no graphs."""

    def __call__(self, work: Work) -> Work:
        """Do `work` once and return it."""
        work()
        return work
