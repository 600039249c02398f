"""How long a device did nothing between kernels, from torch's profiler."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

Interval = tuple[float, float]
"""When a kernel began and ended."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Per step, in the unit of the intervals.

    Attributes:
        total: All that lies between kernels.
        longest: The mean of as many of the longest gaps as there are between the steps.
    """

    total: float
    longest: float


def idle_of(intervals: Sequence[Interval], num_steps: int) -> Idle:
    """Return the gaps in what intervals, in any order and overlapping, leave uncovered."""
    gaps = []
    end: float | None = None
    for begin, until in sorted(intervals):
        if end is not None and begin > end:
            gaps.append(begin - end)
        end = until if end is None else max(end, until)
    longest = sorted(gaps, reverse=True)[: num_steps - 1]
    return Idle(sum(gaps) / num_steps, sum(longest) / max(num_steps - 1, 1))


def profiled_intervals(job: Callable[[], object], device: torch.device) -> list[Interval]:
    """Return when kernels ran during `job`, in microseconds; on a CPU, torch's operators."""
    is_cuda = device.type == "cuda"
    kind = DeviceType.CUDA if is_cuda else DeviceType.CPU
    with profile(activities=[ProfilerActivity.CUDA if is_cuda else ProfilerActivity.CPU]) as trace:
        job()
        if is_cuda:
            torch.cuda.synchronize(device)
    events = [event for event in trace.events() if event.device_type == kind]
    return [(event.time_range.start, event.time_range.end) for event in events]
