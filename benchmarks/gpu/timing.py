"""How long work takes on a device."""

import statistics
import time
from collections.abc import Callable, Sequence

import torch

CALLS_PER_GRAPH = 20

Job = Callable[[], object]
"""Enqueues the same kernels on the same memory every time, and waits for nothing."""


def device_seconds(jobs: Sequence[Job], device: torch.device, repeats: int = 7) -> float:
    """Return the seconds that the kernels of a job take.

    On CUDA the jobs are captured one after the other in a graph, so that launches from the host
    cost nothing; of those within the graph about a microsecond a kernel is left. Jobs on memory of
    their own, more in all than caches hold, find it cold, and a single one finds it in the caches
    if it fits. On a CPU the first job is called by itself.

    Args:
        jobs: Of equal work.
        device: Where they run.
        repeats: Measurements, of which the median counts.
    """
    for job in jobs:
        job()
    if device.type == "cpu":
        return _median(jobs[0], repeats)
    rounds = -(-CALLS_PER_GRAPH // len(jobs))
    graph = graph_of(jobs, rounds)
    return enqueued_seconds(graph.replay, repeats) / (rounds * len(jobs))


def enqueued_seconds(job: Job, repeats: int = 7) -> float:
    """Return the median seconds between events on a CUDA device before and after a job."""
    times = []
    for _ in range(repeats + 1):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        job()
        end.record()
        end.synchronize()
        times.append(float(begin.elapsed_time(end)) / 1e3)
    return statistics.median(times[1:])


def host_seconds(job: Job, device: torch.device, repeats: int = 200) -> float:
    """Return the seconds that the host takes for one `job`, which it does not wait for."""
    job()
    _wait(device)
    began = time.perf_counter()
    for _ in range(repeats):
        job()
    seconds = time.perf_counter() - began
    _wait(device)
    return seconds / repeats


def graph_of(jobs: Sequence[Job], rounds: int) -> torch.cuda.CUDAGraph:
    """Return a graph that calls jobs, which have run before, so many times in turn."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(rounds):
            for job in jobs:
                job()
    return graph


def _median(job: Job, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        job()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
