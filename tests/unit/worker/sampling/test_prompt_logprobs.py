"""Log-probabilities, ranks and alternatives of prompt and output tokens equal transformers'."""

import random
from collections import defaultdict

import numpy as np
import pytest
import torch

from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams
from pagewire_worker.batch import prompt_logprobs
from support.cells.worker_driver import PROMPT, Running, request
from support.kernels.fused_kernels import has_kernels

TOLERANCE = 5e-5


def prompts_of(lengths, seed=3):
    generator = random.Random(seed)
    return [[generator.randrange(512) for _ in range(length)] for length in lengths]


def asking(prompt_logprobs=None, **fields):
    return SamplingParams(
        **{"temperature": 0, "max_tokens": None, "prompt_logprobs": prompt_logprobs, **fields}
    )


@pytest.fixture
def expected(transformers_model):
    """Return a function that gives the log-probabilities of all tokens, [length, vocab]."""

    def get(name, ids):
        with torch.inference_mode():
            return transformers_model(name)(torch.tensor([ids])).logits[0].log_softmax(-1)

    return get


def reports_of(results):
    """Return per slot the tokens reported, in order, as (position, logprob, rank, ids, values)."""
    found = defaultdict(list)
    for result in results:
        report = result.prompt
        if report is None:
            continue
        assert len(report.logprobs) == len(report.ranks) == sum(report.counts)
        num_top = report.num_top if len(report.num_top) else [0] * len(report.ranks)
        ends = np.cumsum(num_top)
        token = 0
        for slot, first, count in zip(
            report.slots, report.first_positions, report.counts, strict=True
        ):
            for position in range(first, first + count):
                which = slice(ends[token] - num_top[token], ends[token])
                found[int(slot)].append(
                    (
                        position,
                        float(report.logprobs[token]),
                        int(report.ranks[token]),
                        report.top_token_ids[which].tolist(),
                        report.top_logprobs[which].tolist(),
                    )
                )
                token += 1
        assert ends[-1] == len(report.top_token_ids) == len(report.top_logprobs)
    return found


def check_token(wanted, token, logprob, rank, ids, values):
    """Compare with [vocab] log-probabilities; equal ones may come in any order."""
    own = float(wanted[token])
    assert logprob == pytest.approx(own, abs=TOLERANCE)
    assert (wanted > own + TOLERANCE).sum() + 1 <= rank <= (wanted >= own - TOLERANCE).sum()
    best = wanted.topk(len(ids)).values.tolist() if ids else []
    assert values == pytest.approx(best, abs=TOLERANCE)
    assert wanted[ids].tolist() == pytest.approx(best, abs=TOLERANCE)
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("budget", [23, 48, 512])
@pytest.mark.parametrize("name", ["llama", "qwen2-tied"])
def test_prompts_in_mixed_batches(name, budget, driver, expected):
    prompts = prompts_of([37, 1, 2, 90, 16, 33, 20])
    wanted = [3, 5, 1, 0, None, 20, 2]
    sequences = [
        Running(slot, prompt, asking(num_top), 5)
        for slot, (prompt, num_top) in enumerate(zip(prompts, wanted, strict=True))
    ]
    found = reports_of(driver(name, block_size=8).finish(sequences, budget=budget))
    # Nothing predicts the token of a prompt of one.
    assert set(found) == {0, 2, 3, 5, 6}
    for slot, reports in found.items():
        prompt = prompts[slot]
        assert [position for position, *_ in reports] == list(range(1, len(prompt)))
        logprobs = expected(name, prompt)
        for position, logprob, rank, ids, values in reports:
            assert len(ids) == wanted[slot]
            check_token(logprobs[position - 1], prompt[position], logprob, rank, ids, values)


def test_beside_vectors(llama):
    alone = Running(0, PROMPT, asking(2), 1)
    expected = reports_of(llama.finish([alone], budget=64))[0]
    params = PoolingParams(pooling="mean")
    vector = Running(1, PROMPT[5:], asking(), 0, pooling=params)
    llama.finish([vector], budget=64)
    mixed = [
        Running(0, PROMPT[5:], asking(), 0, pooling=params),
        Running(1, PROMPT, asking(2), 1),
        Running(2, PROMPT, asking(), 1),
    ]
    found = reports_of(llama.finish(mixed, budget=256))[1]
    np.testing.assert_allclose(mixed[0].vector, vector.vector, atol=1e-6)
    assert [mixed[1].output, mixed[2].output] == [alone.output] * 2
    for one, other in zip(found, expected, strict=True):
        assert (one[0], one[2], one[3]) == (other[0], other[2], other[3])
        assert one[1] == pytest.approx(other[1], abs=1e-5)


def test_logits_come_in_pieces(llama, monkeypatch):
    prompts = prompts_of([50, 61, 7])
    sequences = [Running(slot, prompt, asking(4), 1) for slot, prompt in enumerate(prompts)]
    whole = reports_of(llama.finish(sequences, budget=512))
    again = [Running(one.slot, one.prompt, one.sampling, 1) for one in sequences]
    monkeypatch.setattr(prompt_logprobs, "PIECE_ROWS", 16)
    backend, num_rows = llama.model_runner.backend, []
    logits_of = backend.logits

    def count(hidden, *slots):
        num_rows.append(len(hidden))
        return logits_of(hidden, *slots)

    monkeypatch.setattr(backend, "logits", count)
    pieces = reports_of(llama.finish(again, budget=512))
    # Kernels for CPUs take the most likely tokens after the prompts without logits.
    num_sampled = [] if has_kernels() else [3]
    assert num_rows == [*num_sampled, *[16] * 7, 3]
    assert 16 * 7 + 3 == 49 + 60 + 6
    for slot, reports in whole.items():
        for one, other in zip(reports, pieces[slot], strict=True):
            assert (one[0], one[2], one[3]) == (other[0], other[2], other[3])
            assert one[1] == pytest.approx(other[1], abs=1e-5)


def test_nobody_asked(llama):
    (result,) = llama.finish([Running(0, PROMPT, asking(), 1)], budget=64)
    assert result.prompt is None
    assert len(result.ranks) == 0


def test_emitted_tokens_are_no_part_of_the_prompt(llama):
    again = request(0, sampling=asking(0), emitted_token_ids=[5, 6, 7])
    first = llama.run_well([(0, 0, len(PROMPT) - 1, 0, 0)], new_sequences=[again])
    assert first.prompt.counts.tolist() == [len(PROMPT) - 1]
    assert first.prompt.num_top.tolist() == []
    rest = llama.run_well([(0, len(PROMPT) - 1, 4, 1, 0)])
    assert rest.prompt is None
    assert len(rest.token_ids) == 1


def test_a_chunk_that_begins_inside_reports_what_it_computes(llama):
    start = request(0, sampling=asking(1))
    result = llama.run_well([(0, 0, 10, 0, 0)], new_sequences=[start])
    assert (result.prompt.first_positions.tolist(), result.prompt.counts.tolist()) == ([1], [10])
    result = llama.run_well([(0, 10, 30, 1, 0)])
    assert (result.prompt.first_positions.tolist(), result.prompt.counts.tolist()) == ([11], [29])


def test_a_step_that_fails_reports_nothing_and_can_be_repeated(llama, monkeypatch):
    start = request(0, sampling=asking(2))
    with monkeypatch.context() as patch:
        patch.setattr(llama.model_runner.backend, "logits", lambda *given: 1 / 0)
        failed = llama.run([(0, 0, 40, 1, 0)], new_sequences=[start])
    assert failed.failure is not None
    assert failed.prompt is None
    repeated = llama.run_well([(0, 0, 40, 1, 0)], new_sequences=[start])
    assert repeated.prompt.counts.tolist() == [39]


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_sampled_tokens(temperature, driver, expected):
    prompts = prompts_of([5, 30, 17])
    wanted = [0, None, 20]
    filters = {"temperature": temperature, "top_k": 9, "frequency_penalty": 1.0}
    sequences = [
        Running(slot, prompt, asking(logprobs=num_top, seed=slot, **filters), 12)
        for slot, (prompt, num_top) in enumerate(zip(prompts, wanted, strict=True))
    ]
    driver("llama", block_size=8).finish(sequences, budget=40)
    for sequence, num_top in zip(sequences, wanted, strict=True):
        known = [*sequence.prompt, *sequence.output]
        logprobs = expected("llama", known)
        for index, result in enumerate(sequence.results):
            row = result.slots.tolist().index(sequence.slot)
            if num_top is None:
                # Others in the step may have asked.
                assert len(result.logprobs) == 0 or np.isnan(result.logprobs[row])
                continue
            begin = int(result.num_top[:row].sum())
            which = slice(begin, begin + num_top)
            place = len(sequence.prompt) + index
            check_token(
                logprobs[place - 1],
                known[place],
                float(result.logprobs[row]),
                int(result.ranks[row]),
                result.top_token_ids[which].tolist(),
                result.top_logprobs[which].tolist(),
            )
