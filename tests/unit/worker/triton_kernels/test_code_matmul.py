"""Products with matrices of codes against float64, and what packed matrices hold."""

from dataclasses import replace

import pytest
import torch
from unit.worker.triton_kernels.conftest import TOLERANCES

from pagewire_worker.checkpoint.coded_matrix import (
    SCALE_TYPES,
    CodedMatrix,
    Offset,
    merged,
    of_unsigned,
)
from pagewire_worker.layers.code_linear import CodeLinear
from pagewire_worker.triton_kernels.code_matmul import CodeTile, code_matmul
from pagewire_worker.triton_kernels.packed_codes import has_packed_form, packed
from support.oracles.kernels import tile_matmul_oracle

CPU = torch.device("cpu")
SMALL = CodeTile(rows=16, columns=16, num_stages=2)
OFFSETS = ("none", "zero points", "minima")
SHAPES = [
    (4, 32, 64),
    (4, 16, 80),
    (4, 128, 256),
    (4, 256, 512),
    (4, 100, 100),
    (8, 16, 96),
    (8, 64, 64),
    (8, 128, 128),
    (8, 72, 72),
]
"""Bits, group and inputs: groups within a slab, of some slabs, and of all inputs of a matrix."""


def coded(bits, group, num_inputs, offsets="none", num_outputs=20, scale_type=torch.float16):
    """Return random codes, with scales that show which group a code is taken for."""
    codes = torch.randint(0, 2**bits, (num_outputs, num_inputs), dtype=torch.uint8)
    shape = (num_outputs, num_inputs // group)
    scales = (2.0 ** torch.randint(-3, 3, shape)).to(scale_type)
    zeros = torch.randint(0, 2**bits, shape) if offsets == "zero points" else None
    matrix = of_unsigned(codes, bits, scales, zeros)
    if offsets != "minima":
        return matrix
    return replace(matrix, offsets=torch.randn(shape).to(scale_type), offset=Offset.MINIMUM)


def whole(*shape):
    """Return whole numbers: their products and sums are exact in float32."""
    return torch.randint(-3, 4, shape).float()


@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize(("bits", "group", "num_inputs"), SHAPES, ids=str)
def test_every_code_is_in_its_place(bits, group, num_inputs, offsets, dice):
    """Without tolerance: sums of whole numbers and powers of two have no rest."""
    matrix = coded(bits, group, num_inputs, offsets)
    if offsets == "minima":
        matrix = replace(matrix, offsets=matrix.offsets.round())
    x = whole(18, num_inputs)
    found = code_matmul(x, packed(matrix, CPU), tile=SMALL)
    assert torch.equal(found, x @ matrix.dense().T)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_equals_float64(seed, dtype, dice):
    bits, group, num_inputs = dice.choice(SHAPES)
    kind, scale_type = dice.choice(OFFSETS), dice.choice(SCALE_TYPES)
    num_rows, num_outputs = dice.choice([1, 15, 40]), dice.choice([1, 16, 70])
    matrix = coded(bits, group, num_inputs, kind, num_outputs, scale_type)
    x = torch.randn(num_rows, num_inputs).mul(2.0**-bits * num_inputs**-0.5).to(dtype)
    bias = torch.randn(num_outputs).to(dtype) if dice.random() < 0.5 else None
    found = CodeLinear.of(matrix, bias, CPU, dtype)(x)
    expected = tile_matmul_oracle(x, matrix.dense().double(), bias)
    torch.testing.assert_close(found, expected, **TOLERANCES[dtype])


def test_codes_of_4_bits_mean_what_the_table_says(dice):
    matrix = replace(coded(4, 32, 64), table=torch.randn(16).sort().values)
    x = torch.randn(3, 64)
    expected = tile_matmul_oracle(x, matrix.dense())
    torch.testing.assert_close(code_matmul(x, packed(matrix, CPU), tile=SMALL), expected)


@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("bits", [4, 8])
def test_a_row_has_the_same_bits_in_any_batch(bits, offsets, dice):
    codes = packed(coded(bits, 32, 96, offsets), CPU)
    x = torch.randn(40, 96)
    together = code_matmul(x, codes, tile=SMALL)
    for first, last in ((0, 1), (39, 40), (13, 30)):
        assert torch.equal(code_matmul(x[first:last], codes, tile=SMALL), together[first:last])


@pytest.mark.parametrize("offsets", OFFSETS)
def test_what_is_in_the_rest_of_a_tile_is_not_added(offsets, dice):
    """Rows and inputs behind the ends hold no number, as memory of others may."""
    codes = packed(coded(4, 32, 96, offsets), CPU)
    x = torch.full((40, 128), float("nan"))
    x[:17, :96] = torch.randn(17, 96)
    expected = code_matmul(x[:17, :96].clone(), codes, tile=SMALL)
    assert expected.isfinite().all()
    assert torch.equal(code_matmul(x[:17, :96], codes, tile=SMALL), expected)


def test_groups_in_another_order_take_their_inputs(dice):
    order = torch.randperm(64)
    matrix = replace(coded(4, 32, 64, "zero points"), order=order)
    assert torch.equal(matrix.dense()[:, order], replace(matrix, order=None).dense())
    x = whole(3, 64)
    found = CodeLinear.of(matrix, None, CPU, torch.float32)(x)
    assert torch.equal(found, x @ matrix.dense().T)
    same, other = replace(matrix, order=order.clone()), replace(matrix, order=order.roll(1))
    assert torch.equal(merged([matrix, same]).order, order)
    assert merged([matrix, other]) is None


@pytest.mark.parametrize("bits", [4, 8])
def test_codes_may_lie_by_inputs(bits, dice):
    """As formats that pack along the outputs unpack them; here slabs are whole."""
    matrix = coded(bits, 32, 128)
    turned = replace(matrix, codes=matrix.codes.T.contiguous().T)
    assert torch.equal(packed(turned, CPU).words, packed(matrix, CPU).words)


def test_no_rows():
    assert code_matmul(torch.empty(0, 64), packed(coded(4, 32, 64), CPU)).shape == (0, 20)


@pytest.mark.parametrize(("bits", "group", "num_inputs"), [(4, 128, 512), (8, 512, 512)])
def test_a_device_has_packed_codes_and_no_values(bits, group, num_inputs):
    codes = packed(coded(bits, group, num_inputs, "zero points"), CPU)
    assert codes.words.nbytes == 20 * num_inputs * bits // 8
    assert codes.num_bytes == codes.words.nbytes + 2 * 2 * 20 * num_inputs // group


@pytest.mark.parametrize(
    ("bits", "group", "num_inputs"), [(4, 24, 96), (4, 48, 96), (4, 192, 384), (8, 8, 64)]
)
def test_groups_that_are_no_part_of_a_slab_have_no_packed_form(bits, group, num_inputs):
    matrix = coded(bits, group, num_inputs)
    assert not has_packed_form(matrix)
    assert CodeLinear.of(matrix, None, CPU, torch.float32) is None


def test_parts_of_one_form_are_one_matrix(dice):
    parts = [
        coded(4, 32, 64, "none", 16),
        coded(4, 32, 64, "zero points", 20, torch.float32),
        coded(4, 32, 64, "zero points", 5),
    ]
    matrix = merged(parts)
    assert torch.equal(matrix.dense(), torch.cat([part.dense() for part in parts]))


@pytest.mark.parametrize(
    "other",
    [
        lambda matrix: coded(8, 32, 64),
        lambda matrix: coded(4, 64, 64),
        lambda matrix: replace(matrix, table=torch.randn(16)),
        lambda matrix: coded(4, 32, 64, "minima"),
        CodedMatrix.dense,
    ],
    ids=["bits", "group", "table", "offsets", "values"],
)
def test_parts_of_several_forms_are_not(other):
    matrix = coded(4, 32, 64, "zero points")
    assert merged([matrix, other(matrix)]) is None
