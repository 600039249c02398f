"""silu(gate) * up against torch."""

import pytest
import torch
from unit.worker.triton_kernels.conftest import TOLERANCES

from pagewire_worker.families.plan import ClampedSwiglu, LinearSpec, MlpSpec
from pagewire_worker.layers.activation import ACTIVATIONS, gated
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


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("is_gated", [False, True])
@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_every_activation_equals_torch(name, is_gated, dtype):
    torch.manual_seed(0)
    products = torch.randn(4, 2 * 50).mul(4).to(dtype)
    gate, up = products.float().chunk(2, dim=-1) if is_gated else (products.float(), 1.0)
    expected = (ACTIVATIONS[name](gate) * up).to(dtype)
    found = activate(products, name, is_gated=is_gated)
    torch.testing.assert_close(found, expected, **TOLERANCES[dtype])


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_clamped_gate():
    """Both sides of either limit, and what is not finite: a limit hides no NaN."""
    sides = torch.tensor([-1e4, -8, -7, -1, 0, 1, 6.9, 7, 7.1, 1e4, torch.nan])
    gate, up = sides.repeat_interleave(len(sides)), sides.repeat(len(sides))
    clamped = ClampedSwiglu(7.0, 1.702)
    linear = LinearSpec(parts=(), num_inputs=1)
    spec = MlpSpec(up=linear, down=linear, size=1, clamped=clamped)
    found = activate(torch.cat((gate, up))[None], clamped=clamped)[0]
    torch.testing.assert_close(found, gated(spec, gate, up), equal_nan=True)
    assert found.isnan().sum() == 2 * len(sides) - 1


def test_far_out_values_of_gelu():
    products = torch.tensor([[-1e4, -30.0, 30.0, 1e4]])
    found = activate(products, "gelu_tanh", is_gated=False)
    torch.testing.assert_close(found, torch.tensor([[0.0, 0.0, 30.0, 1e4]]))
