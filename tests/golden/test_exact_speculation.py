"""Speculation changes no bit: random batches with drafts against each request alone without any.

Preemption, prefix hits, chunks, choices, log-probabilities, penalties, grammars, predictions and
dying workers are among them. `python -m support.speculated` in `tests` compares more.
"""

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pagewire_worker.speculation.lookups import DraftFinder
from pagewire_worker.speculation.ngram import NgramFinder
from pagewire_worker.speculation.suffix import SHORTEST_MATCH, SuffixFinder, SuffixRule
from pagewire_worker.speculation.tenant_texts import TenantTexts
from support.cells.exact_cells import SOLO
from support.kernels.fused_kernels import needs_kernels
from support.speculated.cells import NGRAM, PlainAnswers, SpeculatedCell
from support.speculated.targets import (
    TARGETS,
    proposers_of,
    speculated_cell,
    write_adapters,
    write_target,
)

pytestmark = needs_kernels

MOST_ROUNDS = 20


def plain_answers(place: Path, name: str) -> PlainAnswers:
    """The answers of a target without speculation."""
    target = TARGETS[name]
    folder = write_target(place, target)
    adapters = write_adapters(place, folder, target.num_adapters)
    return PlainAnswers(folder, target.settings, adapters=adapters)


@pytest.fixture(scope="module")
def prepare(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], SpeculatedCell]:
    """Make the cell of a target, with all finders in turn, the first time it is asked for."""

    @functools.cache
    def make(name: str) -> SpeculatedCell:
        plain = plain_answers(tmp_path_factory.mktemp("speculation"), name)
        texts = TenantTexts(SHORTEST_MATCH, 100)
        finders: dict[str, DraftFinder] = {
            "ngram": NgramFinder(1, 3),
            "suffix": SuffixFinder(SuffixRule(), texts),
        }
        return SpeculatedCell(plain, NGRAM, {**finders, **plain.scripts()})

    return make


@pytest.mark.parametrize(
    ("name", "num_tokens"),
    [("qwen3", 2500), ("windows int8", 1200), ("gpt-oss int8 over int8", 800)],
)
def test_drafts_change_no_bit(
    prepare: Callable[[str], SpeculatedCell], name: str, num_tokens: int
) -> None:
    case = prepare(name)
    case.check(num_tokens)
    # Threads make masks beside the steps, and late masks end drafts early: the last places of a
    # draft are reached in some batches only.
    for _ in range(MOST_ROUNDS):
        if case.counts.right_at.min() > 0:
            break
        case.check(100)
    assert case.counts.right_at.min() > 0
    assert case.counts.num_tokens > case.counts.right_at.sum()
    cell = case.cell
    assert cell.num_preemptions + cell.num_deaths + cell.num_moved_blocks + cell.num_cached_tokens
    assert case.cell.num_predicted > 0


def test_drafts_change_no_bit_of_adapters(prepare: Callable[[str], SpeculatedCell]) -> None:
    case = prepare("qwen3 with adapters")
    requests, alone = case.plain.requests, case.plain.alone
    for first in (1, 2):  # each adapter changes an answer
        assert any(
            case.cell.run([replace(requests[number], adapter_slot=None)], SOLO)[0] != alone[number]
            for number in range(first, len(requests), 3)
        )
    case.check(400)
    assert case.counts.right_at.sum() > 0
    assert case.counts.num_tokens > case.counts.right_at.sum()


def test_requests_differ_in_all_that_chooses_tokens(
    prepare: Callable[[str], SpeculatedCell],
) -> None:
    plain = prepare("qwen3").plain
    asked = [request.sampling for request in plain.requests]
    for field in ("n", "temperature", "min_p", "presence_penalty", "prompt_logprobs", "logprobs"):
        assert len({getattr(one, field) for one in asked}) > 1, field
    assert any(one.stop_token_ids for one in asked)
    assert any(one.structured_outputs is not None for one in asked)
    endings = [choice.ending for answer in plain.alone for choice in answer.choices]
    assert {one and one[0] for one in endings} == {"finished_stopped", "finished_length"}
    assert all(
        len(answer.prompt_logprobs) == len(request.prompt) - 1
        for request, answer in zip(plain.requests, plain.alone, strict=True)
        if request.sampling.prompt_logprobs is not None
    )


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name",
    [
        "known experts",
        *(pytest.param(name, marks=pytest.mark.whole) for name in TARGETS if "known" not in name),
    ],
)
def test_no_proposer_changes_a_bit(tmp_path: Path, name: str) -> None:
    plain = plain_answers(tmp_path, name)
    for proposer in proposers_of(TARGETS[name]):
        case = speculated_cell(plain, name, proposer, tmp_path / proposer)
        case.check(600)
        assert case.counts.num_tokens > 0, proposer
