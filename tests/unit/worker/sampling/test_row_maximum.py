"""The place of the largest value of a row is the one that torch finds."""

import pytest
import torch

from pagewire_worker.sampling.row_maximum import argmax_of_rows

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("num_rows", [0, 1, 5])
def test_rows_of_a_view(num_rows: int) -> None:
    values = torch.randn(num_rows, 1040)[:, :1000]
    assert torch.equal(argmax_of_rows(values), values.argmax(dim=1))


@pytest.mark.parametrize(
    ("row", "place"),
    [
        ([1.0, 3.0, 3.0, 2.0], 1),
        ([-INF, -INF], 0),
        ([-0.0, 0.0], 0),
        ([1.0, INF, INF], 1),
        ([INF, NAN, NAN], 1),
    ],
)
def test_the_first_of_equal_ones(row: list[float], place: int) -> None:
    # Long enough for vectors, and with a part behind them.
    values = torch.full((2, 77), -INF)
    values[1, 40 : 40 + len(row)] = torch.tensor(row)
    expected = 40 + place if max(row) > -INF else 0
    assert argmax_of_rows(values).tolist() == [0, expected]
    assert torch.equal(argmax_of_rows(values), values.argmax(dim=1))
