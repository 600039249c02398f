"""What tells the numerics of two processors apart."""

import pytest
import torch

from pagewire_worker.cpu_kernels import backend
from pagewire_worker.cpu_kernels.backend import numerics_probe
from pagewire_worker.cpu_kernels.library import KernelPool
from support.kernels.fused_kernels import pools


@pytest.mark.parametrize("pool", pools(1, 2))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_it_does_not_depend_on_the_threads(pool: KernelPool, dtype: torch.dtype) -> None:
    assert numerics_probe(pool, dtype) == numerics_probe(KernelPool(3, pool.instruction_set), dtype)


@pytest.mark.parametrize("pool", pools(1))
def test_a_small_difference_is_seen(pool: KernelPool, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, before = backend._numbers, numerics_probe(pool, torch.float32)

    def nudged(num_rows: int, num_columns: int) -> torch.Tensor:
        found = numbers(num_rows, num_columns).float()
        found[0, 0] += 1e-5
        return found

    monkeypatch.setattr(backend, "_numbers", nudged)
    assert numerics_probe(pool, torch.float32) != before


def test_products_of_pairs_are_not_those_of_single_inputs() -> None:
    """In bfloat16 the instruction for pairs rounds otherwise than two fused additions."""
    found = {
        one.values[0].instruction_set: numerics_probe(one.values[0], torch.bfloat16)
        for one in pools(1)
        if one.values[0] is not None
    }
    if not {"avx512bf16", "avx2"} <= set(found):
        pytest.skip("this processor has no instruction for pairs")
    assert found["avx512bf16"] != found["avx2"]
