"""How far kernels may be from their oracles in Triton's interpreter.

Rule for bfloat16: the interpreter cuts a float32 off where a device rounds it, so such results are
compared with the tolerance of one unit in the last place.
"""

import random

import pytest
import torch

from pagewire_worker.triton_kernels.interpreter import INTERPRETED
from support.poison import poisoned

TOLERANCES = {
    torch.float32: {"rtol": 2e-5, "atol": 2e-5},
    torch.float16: {"rtol": 2e-3, "atol": 2e-3},
    torch.bfloat16: {"rtol": 2**-7, "atol": 2**-7},
}


@pytest.fixture(autouse=True)
def interpreted():
    if not INTERPRETED:
        pytest.skip("kernels are compiled for the device here: tests/gpu runs them")


@pytest.fixture(autouse=True)
def _poisoned():
    """A kernel that reads what nobody wrote, or what is not its own, is seen."""
    with poisoned():
        yield


@pytest.fixture
def dice(request):
    """A generator of its own for each case, which torch's is set from, too."""
    seed = request.node.callspec.params.get("seed", 0) if hasattr(request.node, "callspec") else 0
    torch.manual_seed(seed)
    return random.Random(seed)
