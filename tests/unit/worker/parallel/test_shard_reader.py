"""A rank reads its part of tensors and of codes, and names what it cannot cut."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_worker.checkpoint.coded_matrix import CodedMatrix, FactoredScales
from pagewire_worker.parallel.plan_shards import Cut, PlanShard
from pagewire_worker.parallel.shard_reader import ShardReader

WHOLE = torch.arange(8 * 64, dtype=torch.float32).view(8, 64)


class Tensors:
    """Whole tensors: values, or codes of 32 inputs with a scale."""

    def __init__(self, order: Tensor | None = None) -> None:
        self.order = order
        self.ignored: list[str] = []

    def take_stacked(self, parts: Any) -> Tensor:
        return torch.cat([WHOLE for _ in parts])

    @contextmanager
    def borrow(self, name: str, shape: Any) -> Iterator[Tensor]:
        assert shape == tuple(WHOLE.shape)
        yield WHOLE

    @contextmanager
    def borrow_matrix(self, name: str, shape: Any) -> Iterator[CodedMatrix]:
        assert shape == tuple(WHOLE.shape)
        scales = torch.arange(16, dtype=torch.float32).view(8, 2)
        codes = (WHOLE % 100).to(torch.int8)
        yield CodedMatrix(
            codes=codes, table=None, scales=scales, offsets=scales + 1, order=self.order
        )

    def ignore(self, name: str) -> None:
        self.ignored.append(name)


def reader(cut: Cut, order: Tensor | None = None) -> tuple[ShardReader, Any]:
    tensors: Any = Tensors(order)
    nothing: Any = None
    shard = PlanShard(
        plan=nothing, cuts={"w": cut}, unread=frozenset({"b"}), first_token=0, num_tokens=8
    )
    return ShardReader(tensors, shard, torch.device("cpu"), torch.bfloat16), tensors


def test_rows_of_several_ranges_and_columns() -> None:
    found, tensors = reader(Cut((8, 64), ((1, 2), (4, 6)), (16, 48)))
    expected = WHOLE[[1, 4, 5], 16:48]
    with found.borrow("w", (3, 32)) as part:
        assert torch.equal(part, expected)
    taken = found.take_stacked([("w", (3, 32)), ("w", (3, 32))])
    assert torch.equal(taken, torch.cat([expected, expected]).bfloat16())
    assert torch.equal(found.take("other", (8, 64)), WHOLE)
    assert tensors.ignored == ["b"]


def test_codes_are_cut_between_groups() -> None:
    found, tensors = reader(Cut((8, 64), ((2, 4),), (32, 64)))
    with found.borrow_matrix("w", (2, 32)) as part, tensors.borrow_matrix("w", (8, 64)) as whole:
        assert isinstance(part, CodedMatrix)
        assert torch.equal(part.dense(), whole.dense()[2:4, 32:])


def test_a_scale_of_a_whole_row_is_that_of_each_part() -> None:
    codes = torch.arange(8 * 64).view(8, 64).to(torch.int8)
    whole = CodedMatrix(codes=codes, table=None, scales=torch.rand(8, 1), offsets=torch.rand(8, 1))
    assert whole.why_no_inputs(16, 32) is None
    assert torch.equal(whole.inputs(16, 32).dense(), whole.dense()[:, 16:32])


def test_small_scales_are_cut_between_their_factors() -> None:
    numbers, factors = torch.arange(16, dtype=torch.int8).view(2, 8), torch.rand(2, 2).half()
    scales = FactoredScales(numbers, factors, numbers + 1, factors)
    found = scales.part(slice(4, 8))
    assert found is not None
    assert torch.equal(found.scales, numbers[:, 4:])
    assert torch.equal(found.scale_factors, factors[:, 1:])
    assert found.offsets is not None
    assert torch.equal(found.offsets, numbers[:, 4:] + 1)
    assert scales.part(slice(2, 6)) is None


@pytest.mark.parametrize(
    ("columns", "order", "message"),
    [
        ((0, 16), None, "its groups of 32 inputs would be cut"),
        ((0, 32), torch.arange(64), "the order of its inputs"),
    ],
)
def test_codes_that_cannot_be_cut(
    columns: tuple[int, int], order: Tensor | None, message: str
) -> None:
    found, _ = reader(Cut((8, 64), ((0, 8),), columns), order)
    with (
        pytest.raises(StartupError, match=f"tensor w cannot be divided: {message}"),
        found.borrow_matrix("w", (8, columns[1])),
    ):
        pass
