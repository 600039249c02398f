"""Kernels run in Triton's interpreter, which has to be said before they are imported.

Rule for bfloat16: the interpreter cuts a float32 off where a device rounds it, so such results are
compared with the tolerance of one unit in the last place.
"""

import os
import random

import pytest
import torch

os.environ.setdefault("TRITON_INTERPRET", "1")

TOLERANCES = {
    torch.float32: {"rtol": 2e-5, "atol": 2e-5},
    torch.float16: {"rtol": 2e-3, "atol": 2e-3},
    torch.bfloat16: {"rtol": 2**-7, "atol": 2**-7},
}


@pytest.fixture
def dice(request):
    """A generator of its own for each case, which torch's is set from, too."""
    seed = request.node.callspec.params.get("seed", 0) if hasattr(request.node, "callspec") else 0
    torch.manual_seed(seed)
    return random.Random(seed)
