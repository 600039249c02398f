"""Chooses what samples: kernels where they run, torch elsewhere."""

from collections.abc import Mapping

import torch

from pagewire_worker.cpu_kernels.library import KernelPool
from pagewire_worker.cpu_kernels.sampler import KernelSampler
from pagewire_worker.runner.step_sampler import Sampler
from pagewire_worker.sampling import sampler
from pagewire_worker.triton_kernels.availability import why_no_kernels


def pick_sampler(
    device: torch.device,
    capability: tuple[int, int] | None,
    vocab_size: int,
    pools: Mapping[str, KernelPool],
) -> Sampler:
    """Return kernels where the device runs them, ready to run; torch's ops elsewhere.

    Args:
        capability: Compute capability of the device; None for a CPU.
        vocab_size: How many logits there are in a row.
        pools: Threads of the kernels for CPUs that the model runs on, by instruction set.
    """
    if device.type == "cpu" and pools:
        return KernelSampler(next(iter(pools.values())))
    if capability is None or why_no_kernels(capability) is not None:
        return sampler.sample
    from pagewire_worker.cuda import sampler as kernels

    kernels.warm_up(vocab_size, device)
    return kernels.sample
