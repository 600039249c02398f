"""The requests and figures of benchmarks/compare's cases."""

import random

import pytest
from compare.cases import CASES, LETTERS, LONGEST, MOST_STREAMS, rows
from compare.work import FIRST_ID, Ids, Timed, output_rate, percentile, seconds_for_all

VOCAB = 5000


def ids(seed: int = 0) -> Ids:
    return Ids(VOCAB, random.Random(seed))


def even(sent: float, first: float, gap: float, count: int) -> Timed:
    return Timed(sent, [sent + first + gap * number for number in range(count)], count)


def test_prompts_are_repeatable_and_hold_no_special_ids() -> None:
    assert ids().draw(500) == ids().draw(500) != ids(1).draw(500)
    assert FIRST_ID <= min(ids().draw(5000)) <= max(ids().draw(5000)) < VOCAB * 0.9


def test_a_small_vocabulary_has_prompts_too() -> None:
    assert max(Ids(64, random.Random(0)).draw(100)) < 64


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.letter)
def test_every_metric_has_a_figure_and_every_request_fits(case) -> None:
    batches = case.batches(ids())
    results = [[even(5.0, 0.5, 0.25, request.max_tokens) for request in batch] for batch in batches]
    assert set(case.figures(results)) == {metric.name for metric in case.metrics}
    assert max(len(batch) for batch in batches) <= MOST_STREAMS
    assert max(len(one.prompt) + one.max_tokens for batch in batches for one in batch) <= LONGEST


def test_requests_share_a_prefix_in_case_e_only() -> None:
    for case in CASES:
        batches = case.batches(ids())
        firsts = [one.prompt[:1024] for batch in batches for one in batch]
        assert len(set(firsts)) == (1 if case.letter == "e" else len(firsts))
        whole = [one.prompt for batch in batches for one in batch]
        assert len(set(whole)) == len(whole)


def test_figures() -> None:
    one_stream = next(case for case in CASES if case.letter == "b")
    figures = one_stream.figures([[even(1.0, 0.5, 0.1, 11)]])
    assert figures["itl_p50_ms"] == pytest.approx(100)
    assert figures["itl_mean_ms"] == pytest.approx(100)
    assert figures["output_rate"] == pytest.approx(11 / 1.5)


def test_a_batch_lasts_from_its_first_request_to_its_last_token() -> None:
    batch = [even(1.0, 0.5, 0.1, 6), even(1.5, 1.5, 0.1, 11)]
    assert seconds_for_all(batch) == pytest.approx(3.0)
    assert output_rate(batch) == pytest.approx(17 / 3)


def test_percentiles_lie_between_neighbours() -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], 50) == 2.5
    assert percentile([4.0, 1.0, 3.0, 2.0], 0) == 1.0
    assert percentile([7.0], 99) == 7.0


def test_rows_are_those_of_the_cases_asked_for() -> None:
    assert [letter for letter, _, _ in rows(("c", "f"))] == ["c", "f", "f", "f"]
    assert {letter for letter, _, _ in rows(LETTERS)} == set("abcdef")
