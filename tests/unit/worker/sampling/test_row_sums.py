"""What is said of a token in a large vocabulary does not depend on the other rows, bit for bit."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from pagewire_worker.sampling.filters import apply_filters
from pagewire_worker.sampling.logprobs import token_logprobs
from pagewire_worker.sampling.row_sums import logsumexp, sum_halves, sum_spans

VOCAB = 151936


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """A row that is alone is given to both."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("vocab", [1, 1000, 1024, 1025, VOCAB])
def test_the_sum_is_right(vocab: int) -> None:
    torch.manual_seed(vocab)
    logits = torch.randn(5, vocab) * 4
    exact = logits.double().logsumexp(dim=1, keepdim=True)
    assert ((logsumexp(logits).double() - exact).abs() <= 2e-6).all()


@pytest.mark.parametrize("num_columns", [1024, 2048, 2**18])
def test_both_ways_to_sum_are_right(num_columns: int) -> None:
    torch.manual_seed(num_columns)
    values = torch.rand(5, num_columns)
    exact = values.double().sum(dim=1, keepdim=True)
    for total in (sum_spans(values), sum_halves(values.clone())):
        assert total.shape == (5, 1)
        torch.testing.assert_close(total.double(), exact, rtol=1e-6, atol=0)


def test_halves_are_added_alike_for_one_row_and_many() -> None:
    values = torch.rand(40, 2**18)
    together = sum_halves(values.clone())
    for row in range(40):
        assert torch.equal(sum_halves(values[row : row + 1].clone()), together[row : row + 1])


def test_what_is_excluded_adds_nothing() -> None:
    logits = torch.tensor([[0.0, float("-inf"), 0.0], [float("-inf")] * 3])
    assert torch.equal(logsumexp(logits), torch.tensor([[2.0], [0.0]]).log())


@pytest.mark.parametrize("num_rows", [2, 40])
def test_one_row_equals_one_of_many(num_rows: int) -> None:
    torch.manual_seed(num_rows)
    # The kernels leave room behind each row.
    logits = (torch.randn(num_rows, VOCAB + 16) * 4)[:, :VOCAB]
    token_ids = torch.randint(0, VOCAB, (num_rows,))
    together = token_logprobs(logits, token_ids, 5)
    assert together.top_logprobs is not None
    for row in range(num_rows):
        only = slice(row, row + 1)
        alone = token_logprobs(logits[only], token_ids[only], 5)
        assert alone.top_logprobs is not None
        assert torch.equal(alone.logprobs, together.logprobs[only])
        assert torch.equal(alone.top_logprobs, together.top_logprobs[only])


def test_filters_drop_the_same_of_one_row_and_of_many() -> None:
    torch.manual_seed(0)
    logits = torch.randn(8, VOCAB) * 4
    min_p, top_k = np.zeros(8, np.float32), np.zeros(8, np.int64)
    top_p = np.linspace(0.5, 0.99, 8, dtype=np.float32)
    together = apply_filters(logits, min_p, top_k, top_p)
    for row in range(8):
        only = slice(row, row + 1)
        alone = apply_filters(logits[only], min_p[only], top_k[only], top_p[only])
        assert torch.equal(alone, together[only])
