"""Tokens of the kernel against those of the sampler, token for token."""

import pytest
import torch
from unit.worker.sampling.test_sampler import params, rows_of

from pagewire_worker.sampling.sampler import TokenNoise, sample
from pagewire_worker.triton_kernels.filter_thresholds import filter_thresholds
from pagewire_worker.triton_kernels.sample_tokens import greedy_tokens, sample_tokens
from support.oracles.kernels import sample_tokens_oracle

NOWHERE = float("-inf")


def noise_rows(num_rows):
    """Halves of seeds, positions and choices."""
    return tuple(torch.randint(0, 2**32, (num_rows,)) for _ in range(4))


def logits_of(dice, num_rows, vocab_size):
    """Logits of some width, in half of the cases with ties, in a third with tokens at -inf."""
    logits = torch.randn(num_rows, vocab_size) * dice.choice([0.1, 1.0, 3.0, 10.0])
    if dice.random() < 0.5:
        logits = logits.round()
    if dice.random() < 0.35:
        logits[torch.rand_like(logits) < 0.3] = NOWHERE
    return logits


def split_for(dice, vocab_size):
    """A split that cuts a row into a few."""
    smallest = 1 << (max(4, vocab_size // 3) - 1).bit_length()
    return dice.choice([smallest, smallest * 2, 1024])


@pytest.mark.parametrize("seed", range(60))
def test_tokens_equal_the_law(seed, dice):
    num_rows, vocab_size = dice.randint(1, 3), dice.randint(5, 700)
    logits, rows = logits_of(dice, num_rows, vocab_size), noise_rows(num_rows)
    temperature = torch.tensor([dice.choice([0.0, 0.3, 1.0, 1.7]) for _ in range(num_rows)])
    threshold = dice.choice([None, torch.randn(num_rows)])
    chosen = sample_tokens(logits, temperature, *rows, threshold, split=split_for(dice, vocab_size))
    expected = sample_tokens_oracle(logits, temperature, *rows, threshold)
    assert chosen.tolist() == expected.tolist()


@pytest.mark.parametrize("seed", range(25))
def test_filters_and_tokens_equal_the_sampler(seed, dice):
    requests = [
        (
            params(
                seed=dice.getrandbits(64),
                temperature=dice.choice(temperatures),
                min_p=dice.choice([0.0, 0.0, 0.05]),
                top_k=dice.choice([0, 0, 3, 40]),
                top_p=dice.choice([1.0, 0.5, 0.9]),
            ),
            dice.randint(0, 3),
            [],
        )
        for temperatures in ([0.7, 1.0], [0.0, 1.5])
    ]
    rows = rows_of(requests, [dice.randint(0, 1000) for _ in requests])
    logits = logits_of(dice, 2, dice.randint(50, 500))
    temperature = torch.from_numpy(rows.temperature)
    filters = [torch.from_numpy(values) for values in (rows.min_p, rows.top_k, rows.top_p)]
    threshold = filter_thresholds(logits, temperature, *filters, block=512)
    noise = rows.seed_low, rows.seed_high, rows.position, rows.choice
    chosen = sample_tokens(logits, temperature, *noise, threshold, split=512)
    assert chosen.tolist() == sample(logits, rows).token_ids.tolist()


@pytest.mark.parametrize("seed", range(6))
def test_the_last_bits_of_the_noise_decide(seed, dice):
    rows = noise_rows(2)
    # Every sum is 3 or its neighbour, so each token is looked at with its exact noise.
    logits = 3.0 - TokenNoise(*rows).dense(30)
    expected = sample_tokens_oracle(logits, torch.ones(2), *rows)
    assert sample_tokens(logits, torch.ones(2), *rows, split=16).tolist() == expected.tolist()


@pytest.mark.parametrize("seed", range(10))
def test_greedy_tokens_are_the_argmax(seed, dice):
    logits = logits_of(dice, dice.randint(1, 4), dice.randint(5, 700))
    chosen = greedy_tokens(logits, split=split_for(dice, logits.shape[1]))
    assert chosen.tolist() == logits.argmax(dim=1).tolist()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_of_nothing_takes_id_0(temperature, dice):
    logits = torch.full((1, 40), NOWHERE)
    heat = torch.tensor([temperature])
    assert sample_tokens(logits, heat, *noise_rows(1), split=16).tolist() == [0]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_one_token_that_is_allowed_wins(temperature, dice):
    logits = torch.full((4, 40), NOWHERE)
    allowed = [0, 15, 16, 39]
    logits[range(4), allowed] = -1e4
    heat = torch.full((4,), temperature)
    assert sample_tokens(logits, heat, *noise_rows(4), split=16).tolist() == allowed


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_lowest_id_wins_a_tie_within_a_split_and_across(temperature, dice):
    # At 1e9 the noise is lost in rounding: equal logits have equal sums.
    logits = torch.zeros(2, 40)
    logits[0, [11, 13, 30]] = 1e9
    logits[1, [17, 39]] = 1e9
    heat = torch.full((2,), temperature)
    assert sample_tokens(logits, heat, *noise_rows(2), split=16).tolist() == [11, 17]


def test_a_threshold_keeps_what_is_equal_to_it(dice):
    logits = torch.zeros(3, 30)
    logits[:, 7] = 0.5
    heat, threshold = torch.full((3,), 0.5), torch.ones(3)
    assert sample_tokens(logits, heat, *noise_rows(3), threshold).tolist() == [7, 7, 7]


def test_greedy_rows_do_not_look_at_the_threshold(dice):
    logits = torch.arange(10.0).unsqueeze(0)
    threshold = torch.tensor([100.0])
    assert sample_tokens(logits, torch.zeros(1), *noise_rows(1), threshold).tolist() == [9]


@pytest.mark.parametrize("temperature", [0.3, 0.7, 1.1, 1.9])
def test_the_temperature_divides_as_in_torch(temperature, dice):
    # Multiplying by its inverse would change some of these quotients by a bit, and some winners.
    rows, heat = noise_rows(2), torch.full((2,), temperature)
    scaled = 3.0 - TokenNoise(*rows).dense(40)
    logits = scaled * temperature
    expected = sample_tokens_oracle(logits, heat, *rows)
    assert sample_tokens(logits, heat, *rows).tolist() == expected.tolist()


def test_rows_may_lie_apart(dice):
    wide = torch.randn(3, 100) * 10
    part, rows, heat = wide[:, :37], noise_rows(3), torch.ones(3)
    expected = sample_tokens_oracle(part, heat, *rows)
    assert sample_tokens(part, heat, *rows, split=32).tolist() == expected.tolist()


@pytest.mark.parametrize("seed", range(4))
def test_a_row_alone_takes_the_token_it_takes_in_a_batch(seed, dice):
    logits, rows, heat = torch.randn(3, 200), noise_rows(3), torch.tensor([1.0, 0.0, 2.0])
    together = sample_tokens(logits, heat, *rows, split=128).tolist()
    for row in range(3):
        own = slice(row, row + 1)
        alone = sample_tokens(logits[own], heat[own], *(column[own] for column in rows))
        assert alone.tolist() == together[row : row + 1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_greedy_tokens_need_no_wide_logits(dtype, dice):
    logits = torch.randn(3, 700).to(dtype)
    assert greedy_tokens(logits, split=256).tolist() == logits.float().argmax(dim=1).tolist()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("is_filtered", [False, True])
def test_rows_that_are_no_numbers_are_flagged_and_get_a_token_all_the_same(
    temperature, is_filtered, dice
):
    """An id outside of the vocabulary would end the process at the next step."""
    logits = torch.randn(5, 5000)
    logits[0], logits[1, 7], logits[3, 4999] = float("nan"), float("nan"), float("inf")
    logits[4] = NOWHERE
    heat, rows = torch.full((5,), temperature), noise_rows(5)
    threshold = None
    if is_filtered:
        shares = torch.full((5,), 0.01), torch.full((5,), 50), torch.full((5,), 0.9)
        threshold = filter_thresholds(logits, heat, *shares)
    faults = torch.full((5,), 7)
    chosen = sample_tokens(logits, heat, *rows, threshold, faults=faults)
    assert faults.tolist() == [1, 1, 0, 1, 0]
    assert ((chosen >= 0) & (chosen < 5000)).all()
    expected = sample_tokens_oracle(
        logits[2:3],
        heat[2:3],
        *(row[2:3] for row in rows),
        None if threshold is None else threshold[2:3],
    )
    assert chosen[2] == expected[0]
    assert chosen[4] == 0
    faults.fill_(7)
    assert (greedy_tokens(logits, faults=faults) < 5000).all()
    assert faults.tolist() == [1, 1, 0, 1, 0]
