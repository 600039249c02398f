"""Products over quantized weights: what is stored, what is computed of it, and how far that is
from the product of the weights themselves."""

import pytest
import torch
from torch import Tensor

from pagewire_worker.cpu_kernels import abi
from pagewire_worker.cpu_kernels.library import TYPES, KernelPool, pointer
from pagewire_worker.cpu_kernels.packing import PackedWeights
from support.kernels.fused_kernels import multiply, packed, pools, prepared_rows

KINDS = {"int8": abi.INT8, "int4": abi.INT4}
DTYPES = (torch.float32, torch.bfloat16)


def stored(linear: PackedWeights) -> Tensor:
    """Return the weights that a packed matrix stands for, float64 [outputs, inputs]."""
    storage = linear.storage
    panels = linear.weight[: storage.num_outputs * _panel_bytes(linear) // 16]
    panels = panels.view(storage.num_outputs // 16, -1)
    if storage.kind == abi.INT8:
        assert linear.scales is not None
        values = panels.view(len(panels), -1, 16, 4).permute(0, 2, 1, 3).double() - 128
        return values.reshape(storage.num_outputs, -1) * linear.scales.double()[:, None]
    group = storage.group
    groups = panels.view(len(panels), storage.num_inputs // group, -1)
    scales = groups[..., :64].contiguous().view(torch.float32).double()  # [panels, groups, 16]
    nibbles = groups[..., 64:].reshape(*groups.shape[:2], group // 8, 16, 4)
    both = torch.stack((nibbles & 15, nibbles >> 4), dim=4).double() - 8
    values = both.permute(0, 3, 1, 2, 4, 5).reshape(len(panels), 16, -1, group)
    return (values * scales.permute(0, 2, 1)[..., None]).reshape(storage.num_outputs, -1)


def _panel_bytes(linear: PackedWeights) -> int:
    storage = linear.storage
    if storage.kind == abi.INT8:
        return 16 * storage.num_inputs
    return storage.num_inputs // storage.group * (64 + 8 * storage.group)


def rounded_rows(x: Tensor) -> Tensor:
    """Return rows as int8 with one scale each says them, float64."""
    wide = x.float()
    greatest = wide.abs().amax(dim=1, keepdim=True)
    # torch takes 127 / x for a reciprocal and a product, which rounds twice.
    factor = torch.full_like(greatest, 127) / greatest
    return ((wide * factor).round() * (greatest / 127)).double()


@pytest.mark.parametrize("pool", pools(2))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inputs", [16, 48, 64, 208, 896])
def test_weights_are_stored_to_half_a_step(pool: KernelPool, kind: str, inputs: int) -> None:
    torch.manual_seed(inputs)
    weight = torch.randn(70, inputs).bfloat16()
    linear = packed(pool, weight, kind=KINDS[kind])
    group = linear.storage.group
    found = stored(linear)
    assert (found[70:] == 0).all()
    greatest = weight.double().abs().view(70, -1, group).amax(dim=2)
    step = greatest / (127 if kind == "int8" else 8)
    wrong = (found[:70] - weight.double()).abs().view(70, -1, group).amax(dim=2)
    # The far end of four bits is one step short on the side opposite to the extreme.
    assert (wrong <= step * (0.51 if kind == "int8" else 1.01)).all()


@pytest.mark.parametrize("pool", pools(1, 2))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 8, 9, 33, 70, 300])
def test_a_product(pool: KernelPool, dtype: torch.dtype, kind: str, rows: int) -> None:
    torch.manual_seed(rows)
    weight, bias = torch.randn(150, 208), torch.randn(150)
    x = torch.randn(rows, 208).to(dtype)
    linear = packed(pool, weight, bias, KINDS[kind])
    y = multiply(pool, linear, x)[:, :150].double()
    exact = rounded_rows(x) @ stored(linear)[:150].T + bias.double()
    assert ((y - exact).abs() <= 1e-4).all()
    wanted = x.double() @ weight.double().T + bias.double()
    error = (y - wanted).norm() / wanted.norm()
    assert error < (0.015 if kind == "int8" else 0.12)


@pytest.mark.parametrize("pool", pools(2))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inputs", [208, 1104], ids=["in one block", "in several blocks"])
def test_a_row_does_not_depend_on_the_others(pool: KernelPool, kind: str, inputs: int) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(300, inputs).bfloat16(), torch.randn(150, inputs)
    linear = packed(pool, weight, kind=KINDS[kind])
    whole = multiply(pool, linear, x)
    for rows in (1, 2, 3, 5, 6, 7, 8, 9, 33, 64, 299):
        assert torch.equal(multiply(pool, linear, x[300 - rows :]), whole[300 - rows :]), rows


@pytest.mark.parametrize("kind", KINDS)
def test_all_instruction_sets_give_the_same_integers(kind: str) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(9, 96), torch.randn(40, 96)
    results = []
    for one in pools(2):
        if one.values[0] is None:
            pytest.skip("no kernels")
        linear = packed(one.values[0], weight, kind=KINDS[kind])
        results.append(multiply(one.values[0], linear, x))
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize("pool", pools(2))
def test_rows_of_zeros(pool: KernelPool) -> None:
    linear = packed(pool, torch.zeros(20, 32), kind=abi.INT8)
    assert (multiply(pool, linear, torch.zeros(3, 32)) == 0).all()
    linear = packed(pool, torch.zeros(20, 32), kind=abi.INT4)
    assert (multiply(pool, linear, torch.ones(3, 32)) == 0).all()


@pytest.mark.parametrize("pool", pools(2))
@pytest.mark.parametrize("kind", KINDS)
def test_the_greatest_output(pool: KernelPool, kind: str) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(20, 64).bfloat16(), torch.randn(1001, 64)
    linear = packed(pool, weight, kind=KINDS[kind])
    found, structure = torch.zeros(20, dtype=torch.int64), linear.structure()
    memory = prepared_rows(linear, 20)
    kind_of_x = TYPES[x.dtype]
    pool.argmax(kind_of_x, structure, pointer(x), 20, pointer(memory), 1001, pointer(found))
    assert torch.equal(found, multiply(pool, linear, x)[:, :1001].argmax(dim=1))


@pytest.mark.parametrize("pool", pools(1))
@pytest.mark.parametrize("kind", KINDS)
def test_rows_too_small_for_a_scale_are_next_to_nothing(pool: KernelPool, kind: str) -> None:
    """The reciprocal of their largest value is infinite, and infinity times 0 is no number."""
    torch.manual_seed(0)
    weight, x = torch.randn(32, 64), torch.randn(3, 64)
    expected = multiply(pool, packed(pool, weight, kind=KINDS[kind]), x)
    x[1], x[1, 5] = 0.0, 1e-38
    y = multiply(pool, packed(pool, weight, kind=KINDS[kind]), x)
    assert torch.equal(y[[0, 2]], expected[[0, 2]])
    assert (y[1].abs() <= 4e-38).all()
    weight[7], weight[7, 3] = 0.0, -1e-39
    linear = packed(pool, weight, kind=KINDS[kind])
    assert (stored(linear)[7].abs() <= 1e-38).all()
    found = multiply(pool, linear, x)
    others = [output for output in range(32) if output != 7]
    assert torch.equal(found[:, others], y[:, others])
    assert (found[:, 7].abs() < 1e-26).all()


@pytest.mark.parametrize("pool", pools(1))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_stays_none(pool: KernelPool, kind: str, value: float) -> None:
    """Rounded to bytes it would look like any number, and nobody would see the fault before it."""
    torch.manual_seed(0)
    linear, x = packed(pool, torch.randn(32, 64), kind=KINDS[kind]), torch.randn(3, 64)
    expected = multiply(pool, linear, x)
    x[1, 20] = value
    y = multiply(pool, linear, x)
    assert torch.equal(y[[0, 2]], expected[[0, 2]])
    assert y[1].isnan().all()
