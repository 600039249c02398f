"""Products of experts with stacks of codes against torch, and what has no stack."""

from dataclasses import replace

import pytest
import torch
from unit.worker.triton_kernels.conftest import TOLERANCES
from unit.worker.triton_kernels.test_code_matmul import coded, whole

from pagewire_worker.checkpoint.coded_matrix import CodedMatrix
from pagewire_worker.checkpoint.stored.float8 import E4M3
from pagewire_worker.checkpoint.stored.mxfp4 import TABLE
from pagewire_worker.triton_kernels.code_matmul import CodeTile
from pagewire_worker.triton_kernels.expert_code_matmul import expert_code_matmul
from pagewire_worker.triton_kernels.packed_codes import packed_stack
from pagewire_worker.triton_kernels.route_tokens import sort_rows
from pagewire_worker.triton_kernels.tile_matmul import Tile

CPU = torch.device("cpu")
SMALL = CodeTile(rows=16, columns=16, num_stages=1)
NUM_EXPERTS, NUM_CHOSEN = 4, 2


def float8(num_outputs: int, num_inputs: int, group: int) -> CodedMatrix:
    """Return codes of e4m3fn; each of them is a number, subnormal ones among them."""
    codes = torch.randint(0, 127, (num_outputs, num_inputs), dtype=torch.uint8)
    codes |= torch.randint(0, 2, codes.shape, dtype=torch.uint8) << 7
    scales = 2.0 ** torch.randint(-4, 0, (num_outputs, num_inputs // group)).float()
    return CodedMatrix(codes=codes, table=E4M3, scales=scales)


def mxfp4(num_outputs: int, num_inputs: int) -> CodedMatrix:
    codes = torch.randint(0, 16, (num_outputs, num_inputs), dtype=torch.uint8)
    scales = (2.0 ** torch.randint(-3, 3, (num_outputs, num_inputs // 32))).bfloat16()
    return CodedMatrix(codes=codes, table=torch.tensor(TABLE), scales=scales)


def named(kind: str) -> CodedMatrix:
    """Return one of the forms that checkpoints have, with 20 outputs."""
    match kind:
        case "mxfp4":
            return mxfp4(20, 96)
        case "fp8 blocks":
            return float8(20, 256, 128)
        case "fp8 outputs":
            return float8(20, 72, 72)
        case "int8":
            return coded(8, 72, 72)
        case "nf4":
            return replace(coded(4, 32, 96), table=torch.arange(16.0).square() - 20)
        case "minima":
            return coded(4, 32, 96, "minima")
    return coded(4, 32, 96, "zero points")


KINDS = ("mxfp4", "fp8 blocks", "fp8 outputs", "int8", "nf4", "minima", "zero points")


def multiply(x, matrices, chosen, tile=SMALL, biases=None):
    stack = packed_stack(matrices, len(matrices), CPU)
    rows = sort_rows(chosen, len(matrices), tile.rows)
    return expert_code_matmul(x, stack, rows, tile, NUM_CHOSEN, biases)


@pytest.mark.parametrize("kind", KINDS)
def test_products_are_those_of_the_values(kind, dice):
    """Without tolerance, but for minima: sums of small numbers and powers of two have no rest."""
    matrices = [named(kind) for _ in range(NUM_EXPERTS)]
    num_inputs = matrices[0].codes.shape[1]
    x, biases = whole(19, num_inputs), whole(NUM_EXPERTS, 20)
    chosen = torch.rand(19, NUM_EXPERTS).topk(NUM_CHOSEN).indices.int()
    found = multiply(x, matrices, chosen, biases=biases)
    flat = chosen.flatten().long()
    values = torch.stack([one.dense() for one in matrices]).double()[flat]
    expected = torch.einsum("ch,coh->co", x.double().repeat_interleave(NUM_CHOSEN, 0), values)
    expected += biases[flat]
    if kind in ("minima", "fp8 blocks", "fp8 outputs"):
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-3)
    else:
        assert torch.equal(found.double(), expected)
    # A row alone has the bits that it has beside others.
    alone = multiply(x[4:5], matrices, chosen[4:5], biases=biases)
    assert torch.equal(alone, found[8:10])


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_products_of_all_types(dtype, dice):
    matrices = [named("mxfp4") for _ in range(NUM_EXPERTS)]
    x = torch.randn(5, 96).mul(0.1).to(dtype)
    chosen = torch.rand(5, NUM_EXPERTS).topk(NUM_CHOSEN).indices.int()
    tile = CodeTile.of(dtype)
    found = multiply(x, matrices, chosen, tile)
    values = torch.stack([one.dense() for one in matrices])[chosen.flatten().long()]
    twice = x.float().repeat_interleave(NUM_CHOSEN, 0)
    expected = torch.einsum("ch,coh->co", twice, values).to(dtype)
    torch.testing.assert_close(found, expected, **TOLERANCES[dtype])
    # Rows are sorted once for stacks of values and of codes.
    assert tile.rows == Tile.of(dtype, 64).rows == Tile.of(dtype, 10**4).rows


@pytest.mark.parametrize(("table", "bits"), [(E4M3, 8), (torch.tensor(TABLE), 4)])
def test_every_float_has_its_value(table, bits, dice):
    """With an input of one 1, a product is the value of a code."""
    codes = torch.arange(2**bits, dtype=torch.uint8)[:, None].expand(-1, 32).contiguous()
    matrix = CodedMatrix(codes=codes, table=table, scales=torch.ones(2**bits, 1))
    x, chosen = torch.zeros(1, 32), torch.zeros((1, 1), dtype=torch.int32)
    x[0, 17] = 1.0
    rows = sort_rows(chosen, 1, SMALL.rows)
    found = expert_code_matmul(x, packed_stack([matrix], 1, CPU), rows, SMALL, 1)
    are_numbers = torch.arange(2**bits) & 0x7F != 0x7F
    assert torch.equal(found[0][are_numbers], table[are_numbers])


def test_matrices_of_several_forms_have_no_stack(dice):
    usual = coded(4, 32, 96)
    for other in (
        None,
        coded(8, 32, 96),
        coded(4, 16, 96),
        mxfp4(20, 96),
        replace(usual, order=torch.arange(96)),
        replace(usual, scales=usual.scales.float()),
        coded(4, 24, 96),
    ):
        assert packed_stack([usual, other], 2, CPU) is None
    assert (
        packed_stack([coded(4, 32, 96, "minima"), coded(4, 32, 96, "zero points")], 2, CPU) is None
    )


def test_offsets_of_one_matrix_are_0_in_the_others(dice):
    matrices = [coded(4, 32, 96), coded(4, 32, 96, "zero points"), coded(4, 32, 96)]
    chosen = torch.tensor([[0, 1], [2, 1]], dtype=torch.int32)
    x = whole(2, 96)
    found = multiply(x, matrices, chosen)
    for place, (row, expert) in enumerate(((0, 0), (0, 1), (1, 2), (1, 1))):
        assert torch.equal(found[place], x[row] @ matrices[expert].dense().T)
