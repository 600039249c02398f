"""Products by tiles: in blocks, at both ends of what tiles hold, and AMX against its emulation."""

import random
from pathlib import Path

import pytest
import torch
from torch import Tensor
from unit.worker.cpu_kernels.test_codes import INPUTS, coded, packed_codes

from pagewire_worker.cpu_kernels import abi
from pagewire_worker.cpu_kernels.library import EMULATED, KernelPool
from pagewire_worker.cpu_kernels.packing import Part, Storage, WeightArena, pack
from support.checkpoints.checkpoints import make_checkpoint
from support.kernels.fused_kernels import (
    has_kernels,
    has_tiles,
    instruction_sets,
    multiply,
    packed,
    pools,
)
from support.kernels.fused_steps import Chunk, Sequences, fused_model, over_cache, run, silent

KINDS = {"bf16": abi.BFLOAT16, "int8": abi.INT8, "int4": abi.INT4}

needs_tiles = pytest.mark.skipif(not has_tiles(), reason="this processor has no AMX")


def both(num_threads: int) -> tuple[KernelPool, KernelPool]:
    """Return threads with AMX, and threads that emulate it."""
    return KernelPool(num_threads, "amx"), KernelPool(num_threads, EMULATED)


def assert_equal_bits(found: list[Tensor]) -> None:
    """Check that two results are equal, also where they are not finite."""
    first, second = (one.view(torch.int32) for one in found)
    assert torch.equal(first, second)


@pytest.mark.parametrize("pool", pools(2))
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_has_the_same_bits_in_one_block_and_in_several(pool: KernelPool, kind: str) -> None:
    """Few rows take all inputs at once; many take some hundred at a time."""
    torch.manual_seed(0)
    x, weight = torch.randn(290, 1168).bfloat16(), torch.randn(150, 1168).bfloat16()
    linear = packed(pool, weight, kind=KINDS[kind])
    whole = multiply(pool, linear, x)
    for rows in (1, 2, 3, 8, 9, 15, 16, 17, 32, 33, 257):
        assert torch.equal(multiply(pool, linear, x[:rows]), whole[:rows]), rows
        assert torch.equal(multiply(pool, linear, x[-rows:]), whole[-rows:]), rows


@pytest.mark.parametrize("pool", pools(1))
def test_numbers_that_are_too_small_are_zeros(pool: KernelPool) -> None:
    """The smallest numbers cost some processors much time, and AMX knows none."""
    tiny, one = torch.full((20, 32), 1e-39).bfloat16(), torch.ones(20, 32).bfloat16()
    assert tiny.any()
    for x, weight in ((tiny, one), (one, tiny)):
        y = multiply(pool, packed(pool, weight), x)
        assert (y[:, :20] == 0).all()
    # The caller's thread computed, too, and has its own mode again.
    assert (tiny.float() * 1.0).all()


@needs_tiles
@pytest.mark.parametrize("kind", KINDS)
def test_products_of_amx_and_of_its_emulation(kind: str) -> None:
    generator = random.Random(kind)
    for _ in range(12):
        rows, inputs = generator.choice([1, 3, 16, 17, 40, 290]), 16 * generator.randrange(1, 60)
        torch.manual_seed(generator.randrange(2**31))
        # Exponents far apart: every order of a sum has its own bits.
        spread = torch.randn(rows, inputs) * 2.0 ** torch.randint(-60, 30, (rows, inputs))
        weight = torch.randn(generator.randrange(1, 200), inputs).bfloat16()
        found = [
            multiply(pool, packed(pool, weight, kind=KINDS[kind]), spread.bfloat16())
            for pool in both(2)
        ]
        assert_equal_bits(found)


@needs_tiles
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group", [16, 32, 96])
def test_products_of_codes_by_amx_and_by_its_emulation(bits: int, group: int) -> None:
    torch.manual_seed(0)
    matrix = coded(bits, "minima", group)
    for rows in (1, 16, 50):
        x = torch.randn(rows, INPUTS).bfloat16()
        assert_equal_bits([multiply(pool, packed_codes(pool, matrix), x) for pool in both(1)])


@needs_tiles
@pytest.mark.parametrize("head_dim", [32, 48])
def test_steps_of_amx_and_of_its_emulation(head_dim: int, tmp_path: Path) -> None:
    make_checkpoint(tmp_path, vocab=500, layers=2, with_tokenizer=False, head_dim=head_dim)
    lengths = (200, 70)
    sequences = Sequences(lengths, 16, 500)
    steps = [[Chunk(0, 0, 190), Chunk(1, 0, 33)]]
    steps += [[Chunk(0, 190 + i, 191 + i), Chunk(1, 33 + i, 34 + i)] for i in range(10)]
    batches = [sequences.batch(step) for step in steps]
    found = []
    for pool in both(2):
        model = fused_model(tmp_path, pool, torch.bfloat16)
        cache = over_cache(model, sequences.num_blocks, 16, torch.bfloat16, silent())
        found.append(torch.cat(run(cache, batches)))
    assert torch.equal(*found)


@pytest.mark.skipif(not has_kernels(), reason="there are no kernels for this CPU")
def test_amx_and_its_emulation_share_blocks() -> None:
    names = {"amx", EMULATED} & set(instruction_sets())
    assert {KernelPool(1, name).arithmetic for name in names} <= {"amx"}
    others = set(instruction_sets()) - {"amx", EMULATED, "neon_dot"}
    assert {name: KernelPool(1, name).arithmetic for name in others} == {n: n for n in others}


def test_the_storage_of_a_matrix_is_that_of_every_set() -> None:
    """Panels are tiles of weights already: nothing is packed anew for AMX."""
    if not {"amx", "avx512bf16"} <= set(instruction_sets() if has_kernels() else ()):
        pytest.skip("this processor has no AMX")
    weight = torch.randn(64, 96).bfloat16()
    storage = Storage.of(abi.BFLOAT16, 64, 96)
    made = [
        pack(KernelPool(1, name), WeightArena(storage.num_bytes), storage, [Part(weight)]).weight
        for name in ("amx", "avx512bf16")
    ]
    assert torch.equal(*made)
