"""What reaches the threshold is what the filters leave, token for token."""

import pytest
import torch

from pagewire_worker.triton_kernels.filter_thresholds import filter_thresholds
from support.oracles.kernels import filter_thresholds_oracle

NOWHERE = float("-inf")


def thresholds(logits, temperature=1.0, min_p=0.0, top_k=0, top_p=1.0, block=1024):
    """Thresholds of rows that all have the same parameters."""
    return filter_thresholds(logits, *columns(len(logits), temperature, min_p, top_k, top_p), block)


def columns(num_rows, temperature=1.0, min_p=0.0, top_k=0, top_p=1.0):
    return (
        torch.full((num_rows,), temperature),
        torch.full((num_rows,), min_p),
        torch.full((num_rows,), top_k),
        torch.full((num_rows,), top_p),
    )


def random_columns(dice, num_rows):
    """Parameters of rows, each of its own."""
    return (
        torch.tensor([dice.choice([0.2, 0.7, 1.0, 1.9]) for _ in range(num_rows)]),
        torch.tensor([dice.choice([0.0, 0.01, 0.3]) for _ in range(num_rows)]),
        torch.tensor([dice.choice([0, 1, 5, 50, 600]) for _ in range(num_rows)]),
        torch.tensor([dice.choice([1.0, 0.1, 0.5, 0.9, 0.99]) for _ in range(num_rows)]),
    )


def logits_of(dice, num_rows, vocab_size):
    """Logits of some width, in half of the cases with ties, in a third with tokens at -inf."""
    logits = torch.randn(num_rows, vocab_size) * dice.choice([0.1, 1.0, 3.0, 10.0])
    if dice.random() < 0.5:
        logits = logits.mul(2).round().div(2)
    if dice.random() < 0.35:
        logits[torch.rand_like(logits) < 0.3] = NOWHERE
    return logits


def assert_leaves_the_same(logits, rows, threshold):
    scaled = logits / rows[0].unsqueeze(1)
    is_left = (scaled >= threshold.unsqueeze(1)) & (scaled > NOWHERE)
    expected = filter_thresholds_oracle(logits, *rows) > NOWHERE
    assert is_left.sum(dim=1).tolist() == expected.sum(dim=1).tolist()
    assert torch.equal(is_left, expected)


def check(logits, block=1024, **parameters):
    rows = columns(len(logits), **parameters)
    threshold = filter_thresholds(logits, *rows, block=block)
    assert_leaves_the_same(logits, rows, threshold)
    return threshold.tolist()


@pytest.mark.parametrize("seed", range(50))
def test_leaves_what_the_filters_leave(seed, dice):
    num_rows, vocab_size = dice.choice([1, 1, 2]), dice.randint(5, 700)
    logits, rows = logits_of(dice, num_rows, vocab_size), random_columns(dice, num_rows)
    block = dice.choice([512, 1024, 1024])
    assert_leaves_the_same(logits, rows, filter_thresholds(logits, *rows, block=block))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    "parameters",
    [{"min_p": 0.05}, {"top_k": 7}, {"top_p": 0.8}],
    ids=["min_p", "top_k", "top_p"],
)
def test_each_filter_alone(seed, parameters, dice):
    check(logits_of(dice, 1, dice.randint(8, 300)), temperature=0.8, **parameters)


def test_nothing_filters():
    assert thresholds(torch.randn(2, 50)).tolist() == [NOWHERE] * 2


def test_greedy_rows_have_no_threshold():
    logits = torch.randn(1, 50)
    assert thresholds(logits, 0.0, min_p=0.5, top_k=3, top_p=0.5).tolist() == [NOWHERE]


def test_a_row_of_nothing_has_no_threshold():
    logits = torch.full((1, 50), NOWHERE)
    assert thresholds(logits, min_p=0.5, top_k=3, top_p=0.5).tolist() == [NOWHERE]


@pytest.mark.parametrize("top_k", [50, 51, 1000])
def test_top_k_of_the_vocabulary_and_more_keeps_all(top_k):
    assert check(torch.randn(1, 50), top_k=top_k) == [NOWHERE]


@pytest.mark.parametrize("top_k", [1, 2, 49])
def test_top_k_at_its_ends(top_k):
    check(torch.randn(1, 50), top_k=top_k)


def test_top_k_keeps_ties_with_the_last_one():
    logits = torch.tensor([[1.0, 3.0, 2.0, 2.0, 2.0, 0.0]])
    assert check(logits, top_k=2) == [2.0]


def test_top_p_keeps_ties_with_the_last_one():
    logits = torch.tensor([[1.0, 3.0, 2.0, 2.0, 2.0, 0.0]])
    assert check(logits, top_p=0.6) == [2.0]


def test_equal_logits_are_all_kept():
    assert check(torch.full((1, 33), 0.25), top_k=5, top_p=0.1, min_p=0.9) == [0.25]


def test_logits_that_the_temperature_makes_equal_are_kept_together():
    # Neighbours of float32 that fall on one quotient.
    heat = 1.5
    logits = (1.875 + torch.arange(9) * 2.0**-23).unsqueeze(0)
    assert len((logits / heat).unique()) < 9
    for top_k in range(1, 9):
        check(logits, temperature=heat, top_k=top_k)
    check(logits, temperature=heat, top_p=0.5)


def test_zeros_of_both_signs_are_equal():
    logits = torch.tensor([[0.0, -0.0, -1.0, -0.0, 0.0]])
    for parameters in ({"top_k": 1}, {"top_k": 3}, {"top_p": 0.1}, {"top_p": 0.6}):
        check(logits, **parameters)


def test_top_k_of_more_than_min_p_left_drops_no_more():
    logits = torch.tensor([[5.0, 4.9, 1.0, 0.0, -1.0]])
    both = check(logits, min_p=0.5, top_k=4)
    assert both == check(logits, min_p=0.5)


def test_top_p_counts_shares_of_what_top_k_left():
    # Of all, 0.6 needs three of the five; of the two that are left, one.
    logits = torch.tensor([[0.3, 0.2, 0.2, 0.15, 0.15]]).log()
    alone, after = check(logits, top_p=0.55), check(logits, top_k=1, top_p=0.55)
    assert alone[0] < after[0]


def test_top_p_that_rounding_never_reaches_drops_nothing_that_counts():
    almost_one = 1 - 2.0**-24
    logits = torch.tensor([[0.0, -1.0, -2.0, NOWHERE]])
    threshold = thresholds(logits, top_p=almost_one)
    assert threshold[0] <= -2.0


@pytest.mark.parametrize("num_kept", [67, 134, 195])
def test_min_p_holds_where_top_p_is_never_reached(num_kept):
    # So many equal shares, each rounded, sum up to 1 - 2e-7.
    logits = torch.tensor([[0.0] * num_kept + [-5.0]])
    threshold = check(logits, min_p=0.5, top_p=1 - 2.0**-24)
    assert threshold == check(logits, min_p=0.5)


@pytest.mark.parametrize("last", [-16.05, -16.15, -16.25])
def test_many_tokens_of_hardly_any_probability_count_together(last):
    # 341 each, at about 2**-23: 3.8e-5 to 2.6e-5. Each key of a quarter finds one `last`.
    rare = torch.tensor([-16.0, last, -16.4]).repeat_interleave(341)
    logits = torch.cat((rare, torch.zeros(1))).unsqueeze(0)
    assert check(logits, top_p=1 - 4.1e-5) == pytest.approx([last])


def test_a_tiny_top_p_keeps_the_most_likely():
    assert check(torch.tensor([[1.0, 4.0, 2.0]]), top_p=1e-9) == [4.0]


@pytest.mark.parametrize("offset", [-1e4, -50.0, 50.0, 1e4])
@pytest.mark.parametrize("parameters", [{"top_k": 9}, {"top_p": 0.7}], ids=["top_k", "top_p"])
def test_logits_far_from_zero(offset, parameters, dice):
    check(torch.randn(1, 100) * 2 + offset, **parameters)


@pytest.mark.parametrize("parameters", [{"top_k": 9}, {"top_p": 0.99}], ids=["top_k", "top_p"])
def test_logits_far_apart(parameters, dice):
    check(torch.randn(1, 100) * 1e4, **parameters)


@pytest.mark.parametrize("seed", range(4))
def test_the_block_changes_no_bit(seed, dice):
    logits, rows = logits_of(dice, 1, 100), random_columns(dice, 1)
    narrow = filter_thresholds(logits, *rows, block=64)
    assert torch.equal(narrow, filter_thresholds(logits, *rows, block=256))


def test_rows_alone_and_apart_have_the_bits_they_have_in_a_batch(dice):
    wide = torch.randn(3, 100)
    logits, rows = wide[:, 3:90], random_columns(dice, 3)
    together = filter_thresholds(logits, *rows)
    for row in range(3):
        own = slice(row, row + 1)
        alone = filter_thresholds(logits[own].clone(), *(column[own] for column in rows))
        assert torch.equal(alone, together[own])


def test_more_blocks_than_sums_can_take_are_refused():
    with pytest.raises(AssertionError):
        thresholds(torch.zeros(1, 16 * 512 + 1), block=16)
