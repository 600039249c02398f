"""Which sampler chooses tokens on a device."""

import torch

from pagewire_worker.runner.step_sampler import Sampler
from pagewire_worker.sampling import sampler
from pagewire_worker.triton_kernels.availability import why_no_kernels


def pick_sampler(
    device: torch.device, capability: tuple[int, int] | None, vocab_size: int
) -> Sampler:
    """Return kernels where the device runs them, ready to run; torch's ops elsewhere.

    Args:
        device: Where logits are.
        capability: Compute capability of the device; None for a CPU.
        vocab_size: How many logits there are in a row.
    """
    if capability is None or why_no_kernels(capability) is not None:
        return sampler.sample
    from pagewire_worker.cuda import sampler as kernels

    kernels.warm_up(vocab_size, device)
    return kernels.sample
