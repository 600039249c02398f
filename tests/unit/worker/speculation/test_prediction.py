"""Predicted outputs: where an output stands in its prediction, and what is counted."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import StepResult
from pagewire_worker.batch.draft_rows import DraftRows, VerifiedRows
from pagewire_worker.batch.slots import SlotLimits, SlotTable
from pagewire_worker.speculation.lookups import Lookups
from pagewire_worker.speculation.ngram import NgramFinder
from pagewire_worker.speculation.prediction import PredictionFinder
from pagewire_worker.speculation.proposer import SequenceStart
from pagewire_worker.speculation.speculator import Speculator
from support.cells.worker_driver import request

PROMPT = [7, 8, 9]
PREDICTED = [10, 11, 12, 13, 14, 15, 16]


def found(*outputs, predicted=PREDICTED, most=3, vocab_size=512):
    """What is found after each of `outputs`, of one sequence that grows."""
    finder = PredictionFinder(vocab_size)
    start = SequenceStart(
        num_prompt=len(PROMPT), num_tokens=len(PROMPT), predicted_token_ids=predicted
    )
    finder.begin(0, start)
    texts = [np.array([*PROMPT, *output], dtype=np.int32) for output in outputs]
    return [list(finder.find(0, text, most)) for text in texts]


def test_an_output_is_followed_through_its_prediction():
    assert found([10], [10, 11, 12], [10, 11, 12, 13, 14, 15]) == [[11, 12, 13], [13, 14, 15], [16]]
    assert found(PREDICTED) == [[]]
    assert found([*PREDICTED, 17]) == [[]]


def test_an_output_that_has_left_is_found_again():
    assert found([10, 50], [10, 50, 51], [10, 50, 51, 14, 15]) == [[], [], [16]]
    assert found([99], [99, 11, 12]) == [[], [13, 14, 15]]


def test_the_longest_match_wins_and_then_the_nearest():
    text = [1, 2, 3, 60, 5, 2, 3, 61, 4, 2, 3, 62]
    assert found([99, 4, 2, 3], predicted=text, most=1) == [[62]]
    assert found([1, 99, 2, 3], predicted=text, most=1) == [[60]]


def test_nothing_but_tokens_of_the_model_is_proposed():
    assert found([10], vocab_size=13) == [[11, 12]]
    assert found([10], predicted=[]) == [[]]


@pytest.mark.parametrize(("right", "is_predicted"), [(2, True), (0, True), (2, False)])
def test_verified_drafts_of_a_prediction_are_counted(right, is_predicted):
    """Those that other methods find are not."""
    limits = SlotLimits(num_slots=2, num_blocks=1, block_size=16, max_model_len=64, vocab_size=512)
    table, predictions = SlotTable(limits, torch.device("cpu")), PredictionFinder(512)
    speculator = Speculator(
        proposer=Lookups([predictions, NgramFinder(1, 2)]),
        table=table,
        costs=None,
        most=3,
        predictions=predictions,
    )
    given = {"predicted_token_ids": PREDICTED} if is_predicted else {}
    new = request(1, prompt_token_ids=PREDICTED, **given)
    speculator.follow(StepPlan(1, 1, 1, new_sequences=[new]))
    table.host_tokens[1, :8] = [*PREDICTED, 10]
    table.num_tokens[1] = 8
    result = StepResult(1, 1, 1, slots=[1], counts=[1], model_time_us=100)
    slots, rows = np.array([1]), np.arange(4)
    step = SimpleNamespace(
        slots=slots, token_slots=slots, token_positions=slots, sampling_slots=slots, drafts=None
    )
    assert speculator.take(result, step, None).num_drafts.tolist() == [3]
    assert list(speculator.drafts(1, 8)) == [11, 12, 13]
    step = SimpleNamespace(
        slots=slots,
        ends=np.array([8]),
        token_slots=rows,
        token_positions=rows,
        sampling_slots=rows,
        drafts=DraftRows(np.array([3]), rows, rows),
        num_accepted=lambda verified: verified.counts - 1,
    )
    table.num_tokens[1] = 9 + right
    result = StepResult(1, 1, 2, slots=[1], counts=[1 + right], model_time_us=100)
    taken = speculator.take(result, step, VerifiedRows(rows <= right, np.array([1 + right])))
    assert list(taken.num_predicted) == ([3] if is_predicted else [])
