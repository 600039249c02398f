"""silu(gate) * up against torch."""

import pytest
import torch
from unit.worker.triton_kernels.conftest import TOLERANCES

from pagewire_worker.triton_kernels.activate import activate
from support.oracles.kernels import activate_oracle


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("seed", range(8))
def test_equals_torch(seed, dtype, dice):
    num_tokens, size = dice.randint(1, 5), dice.choice([1, 16, 100, 1024, 1500])
    gate_up = torch.randn(num_tokens, 2 * size).mul(4).to(dtype)
    torch.testing.assert_close(activate(gate_up), activate_oracle(gate_up), **TOLERANCES[dtype])


def test_rows_may_lie_apart():
    wide = torch.randn(3, 64)
    part = wide[:, :40]
    torch.testing.assert_close(activate(part), activate_oracle(part), **TOLERANCES[torch.float32])


@pytest.mark.filterwarnings("ignore:overflow")
def test_far_out_values_do_not_overflow():
    gate_up = torch.tensor([[-200.0, 200.0, 2.0, 3.0]])
    torch.testing.assert_close(activate(gate_up), torch.tensor([[0.0, 600.0]]))
