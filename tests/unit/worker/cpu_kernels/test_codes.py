"""Products over matrices of codes, as others have quantized them: their inputs are not rounded, and
a row's bits depend on no other row."""

import itertools
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from pagewire_worker.checkpoint.coded_matrix import (
    SCALE_TYPES,
    CodedMatrix,
    FactoredScales,
    Offset,
    of_unsigned,
)
from pagewire_worker.checkpoint.stored.float8 import E4M3
from pagewire_worker.cpu_kernels import abi
from pagewire_worker.cpu_kernels.code_form import form_of
from pagewire_worker.cpu_kernels.library import TYPES, KernelPool, pointer
from pagewire_worker.cpu_kernels.packing import PackedWeights, Part, Storage, WeightArena, pack
from support.kernels.fused_kernels import multiply, pools, prepared_rows

DTYPES = (torch.float32, torch.bfloat16)
OFFSETS = ("none", "zero points", "minima")
FLOATS = -8
"""In place of bits: floats of 8 bits."""
FORMS = [*itertools.product((4, 8), OFFSETS), (FLOATS, "none")]
KINDS = {8: abi.CODES8, 4: abi.CODES4, FLOATS: abi.FLOATS8}
OUTPUTS, INPUTS = 150, 576


def coded(
    bits: int,
    offsets: str = "none",
    group: int = 32,
    scale_type: torch.dtype = torch.float16,
    outputs: int = OUTPUTS,
) -> CodedMatrix:
    """Return random codes, scales and offsets."""
    shape = (outputs, INPUTS // group)
    scales = (torch.rand(shape) + 0.1).to(scale_type)
    if bits == FLOATS:
        codes = torch.randn(outputs, INPUTS).mul(0.1).to(torch.float8_e4m3fn).view(torch.uint8)
        return CodedMatrix(codes=codes, table=E4M3, scales=scales)
    codes = torch.randint(0, 256 if bits == 8 else 16, (outputs, INPUTS), dtype=torch.uint8)
    zeros = torch.randint(0, 2**bits, shape) if offsets == "zero points" else None
    matrix = of_unsigned(codes, bits, scales, zeros)
    if offsets != "minima":
        return matrix
    return replace(matrix, offsets=torch.randn(shape).to(scale_type), offset=Offset.MINIMUM)


def packed_codes(
    pool: KernelPool, *matrices: CodedMatrix, kind: int = abi.FLOAT32
) -> PackedWeights:
    """Return matrices one below the other; each has whole panels but the last."""
    parts, panel = [], 0
    for matrix in matrices:
        parts.append(Part(matrix, panel))
        panel += -(-len(matrix.codes) // 16)
    num_outputs = sum(len(matrix.codes) for matrix in matrices)
    storage = Storage.of_parts(kind, num_outputs, INPUTS, parts)
    return pack(pool, WeightArena(storage.num_bytes), storage, parts)


def assert_close(y: Tensor, x: Tensor, weight: Tensor) -> None:
    """Check a product against one in float64: sums are in float32."""
    exact = x.double() @ weight.double().T
    bound = x.double().abs() @ weight.double().abs().T
    assert ((y.double() - exact).abs() <= 2e-6 * bound + 1e-6).all()


@pytest.mark.parametrize("pool", pools(2))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("bits", "offsets"), FORMS)
def test_a_product(pool: KernelPool, dtype: torch.dtype, bits: int, offsets: str) -> None:
    torch.manual_seed(abs(bits))
    for group, scale_type in ((16, SCALE_TYPES[0]), (32, SCALE_TYPES[1]), (192, SCALE_TYPES[2])):
        matrix = coded(bits, offsets, group, scale_type)
        linear = packed_codes(pool, matrix)
        assert linear.storage.kind == KINDS[bits]
        for rows in (1, 3, 8, 9, 70, 300):
            x = torch.randn(rows, INPUTS).to(dtype)
            y = multiply(pool, linear, x)
            assert (y[:, OUTPUTS:] == 0).all()
            # Sums before the offset is added are larger than the product.
            weight = matrix.dense()
            if offsets == "none":
                assert_close(y[:, :OUTPUTS], x, weight)
            else:
                exact = x.double() @ weight.double().T
                bound = x.double().abs().sum(1, keepdim=True) * weight.double().abs().max() * 2
                assert ((y[:, :OUTPUTS].double() - exact).abs() <= 4e-6 * bound).all()


@pytest.mark.parametrize("pool", pools(2))
@pytest.mark.parametrize(("bits", "offsets"), FORMS)
@pytest.mark.parametrize("group", [32, INPUTS])
def test_a_row_does_not_depend_on_the_others(
    pool: KernelPool, bits: int, offsets: str, group: int
) -> None:
    torch.manual_seed(abs(bits))
    linear = packed_codes(pool, coded(bits, offsets, group))
    x = torch.randn(300, INPUTS).bfloat16()
    whole = multiply(pool, linear, x)
    for rows in (1, 2, 3, 5, 6, 7, 8, 9, 31, 33, 64, 299):
        assert torch.equal(multiply(pool, linear, x[300 - rows :]), whole[300 - rows :]), rows


@pytest.mark.parametrize("pool", pools(2))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("offsets", OFFSETS)
def test_inputs_are_put_in_the_order_of_codes(
    pool: KernelPool, dtype: torch.dtype, bits: int, offsets: str
) -> None:
    """The bits of a product are those of one whose input was put in order before."""
    torch.manual_seed(bits)
    matrix, order = coded(bits, offsets), torch.randperm(INPUTS)
    plain = packed_codes(pool, matrix)
    ordered = packed_codes(pool, replace(matrix, order=order))
    for rows in (1, 3, 70, 300):
        x = torch.randn(rows, INPUTS).to(dtype)
        expected = multiply(pool, plain, x[:, order].contiguous())
        assert torch.equal(multiply(pool, ordered, x), expected), rows


def test_a_product_does_not_depend_on_the_threads() -> None:
    torch.manual_seed(0)
    x, matrix = torch.randn(70, INPUTS).bfloat16(), coded(4, "zero points")
    results = []
    for one in map(KernelPool, (1, 2, 5)):
        results.append(multiply(one, packed_codes(one, matrix), x))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("pool", pools(1))
def test_codes_of_4_bits_mean_what_the_table_says(pool: KernelPool) -> None:
    torch.manual_seed(0)
    table = torch.randn(16).sort().values
    matrix = replace(coded(4, scale_type=torch.float32), table=table)
    x = torch.randn(5, INPUTS)
    assert_close(multiply(pool, packed_codes(pool, matrix), x)[:, :OUTPUTS], x, matrix.dense())


@pytest.mark.parametrize("pool", pools(1))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("table", [torch.arange(16.0) + first for first in (-98, -8, 0, 98, 99)])
def test_codes_of_whole_numbers_are_exact(
    pool: KernelPool, dtype: torch.dtype, table: Tensor
) -> None:
    """Of a row of numbers, sets may compute the values in the place of looking them up."""
    codes = torch.arange(16, dtype=torch.uint8)[:, None].expand(-1, INPUTS).contiguous()
    linear = packed_codes(pool, CodedMatrix(codes=codes, table=table, scales=torch.ones(16, 1)))
    for place in range(96, 104):  # the codes of a word
        x = torch.zeros((1, INPUTS), dtype=dtype)
        x[0, place] = 1.0
        assert torch.equal(multiply(pool, linear, x)[0], table)


@pytest.mark.parametrize("pool", pools(1))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", [1, 70])
def test_every_float_of_8_bits_has_its_value(
    pool: KernelPool, dtype: torch.dtype, rows: int
) -> None:
    """Without tolerance, for few rows and for many, of which codes are widened first."""
    codes = torch.arange(256, dtype=torch.uint8)[:, None].expand(-1, INPUTS).contiguous()
    codes[codes & 0x7F == 0x7F] = 0
    matrix = CodedMatrix(codes=codes, table=E4M3, scales=torch.ones(256, 1))
    x = torch.zeros((rows, INPUTS), dtype=dtype)
    x[:, 101] = 2.0
    found = multiply(pool, packed_codes(pool, matrix), x)
    assert torch.equal(found.float(), (2 * E4M3).expand(rows, -1))


@pytest.mark.parametrize("pool", pools(2))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("group", "shared"), [(16, 12), (32, 6), (32, 1)])
@pytest.mark.parametrize("has_minima", [False, True])
def test_factored_scales_give_the_bits_of_their_products(
    pool: KernelPool, dtype: torch.dtype, bits: int, group: int, shared: int, has_minima: bool
) -> None:
    torch.manual_seed(bits)
    shape = (OUTPUTS, INPUTS // group)
    parts, products = [], []
    for _ in range(1 + has_minima):
        numbers = torch.randint(-128, 128, shape, dtype=torch.int8)
        factors = torch.randn(OUTPUTS, shape[1] // shared).half()
        products.append(numbers.float() * factors.float().repeat_interleave(shared, dim=1))
        parts += [numbers, factors]
    plain = replace(coded(bits, "none", group), scales=products[0])
    if has_minima:
        plain = replace(plain, offsets=products[1], offset=Offset.MINIMUM)
    factored = packed_codes(pool, replace(plain, factored=FactoredScales(*parts)))
    whole = packed_codes(pool, plain)
    assert factored.storage.num_bytes < whole.storage.num_bytes
    for rows in (1, 3, 70, 300):
        x = torch.randn(rows, INPUTS).to(dtype)
        assert torch.equal(multiply(pool, factored, x), multiply(pool, whole, x)), rows


@pytest.mark.parametrize("pool", pools(1))
def test_scales_of_float16_are_exact(pool: KernelPool) -> None:
    """The least and the greatest, those below the normal ones, and negative ones."""
    scales = torch.tensor([2**-24, -(2**-15), 1.5 * 2**-14, 65504.0, -0.25, 0.0]).half()
    codes = torch.ones((16, INPUTS), dtype=torch.int8)
    matrix = CodedMatrix(
        codes=codes, table=None, scales=scales.repeat(16, INPUTS // 32 // len(scales))
    )
    linear = packed_codes(pool, matrix)
    for number, scale in enumerate(scales.tolist()):
        x = torch.zeros(1, INPUTS)
        x[0, number * 32] = 1.0
        assert multiply(pool, linear, x).unique().tolist() == [scale]


@pytest.mark.parametrize("pool", pools(1))
def test_parts_with_and_without_zero_points_are_one_matrix(pool: KernelPool) -> None:
    torch.manual_seed(0)
    parts = [coded(4, "none", outputs=32), coded(4, "zero points", outputs=48)]
    linear = packed_codes(pool, *parts)
    assert linear.storage.kind == abi.CODES4
    x = torch.randn(5, INPUTS)
    weight = torch.cat([part.dense() for part in parts])
    torch.testing.assert_close(multiply(pool, linear, x), x @ weight.T, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("pool", pools(1))
def test_parts_of_other_forms_become_values(pool: KernelPool) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, INPUTS)
    for second in (coded(8, outputs=16), coded(4, group=64, outputs=16)):
        parts = [coded(4, outputs=32), second]
        linear = packed_codes(pool, *parts)
        assert linear.storage.kind == abi.FLOAT32
        weight = torch.cat([part.dense() for part in parts])
        torch.testing.assert_close(multiply(pool, linear, x), x @ weight.T, atol=1e-4, rtol=1e-5)


def test_groups_that_the_kernels_do_not_read_have_no_form() -> None:
    assert form_of(coded(4, group=8)) is None
    assert form_of(coded(4, group=16)) is not None


@pytest.mark.parametrize("pool", pools(2))
@pytest.mark.parametrize("bits", [4, 8])
def test_the_greatest_output(pool: KernelPool, bits: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(20, INPUTS).bfloat16()
    linear = packed_codes(pool, coded(bits, "minima", outputs=1001))
    found, structure = torch.zeros(20, dtype=torch.int64), linear.structure()
    memory = prepared_rows(linear, 20)
    pool.argmax(TYPES[x.dtype], structure, pointer(x), 20, pointer(memory), 1001, pointer(found))
    assert torch.equal(found, multiply(pool, linear, x)[:, :1001].argmax(dim=1))


@pytest.mark.parametrize("pool", pools(1))
@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_stays_in_its_row(pool: KernelPool, offsets: str, value: float) -> None:
    torch.manual_seed(0)
    linear, x = packed_codes(pool, coded(4, offsets)), torch.randn(3, INPUTS)
    expected = multiply(pool, linear, x)
    x[1, 20] = value
    y = multiply(pool, linear, x)
    assert torch.equal(y[[0, 2]], expected[[0, 2]])
    assert not y[1, :OUTPUTS].isfinite().any()
