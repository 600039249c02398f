"""Which sampler chooses tokens on a device."""

import torch

from pagewire_worker import sampler
from pagewire_worker.step_sampler import Sampler
from pagewire_worker.triton_choice import has_triton


def pick_sampler(device: torch.device, vocab_size: int) -> Sampler:
    """Return kernels where the device runs them, ready to run; torch's ops elsewhere.

    Args:
        device: Where logits are.
        vocab_size: How many there are in a row.
    """
    if device.type != "cuda" or not has_triton():
        return sampler.sample
    from pagewire_worker.cuda import sampler as kernels

    kernels.warm_up(vocab_size, device)
    return kernels.sample
