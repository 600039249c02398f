"""Vectors equal transformers' states, pooled, however the prompt is cut and whoever runs beside."""

import numpy as np
import pytest
import torch

from pagewire_shared.sampling.pooling import PoolingParams
from pagewire_worker.batch.pooling import PoolingChunk, PoolingRows, pool
from pagewire_worker.batch.pooling_table import EMPTY_SUM
from support.cells.worker_driver import GREEDY, PROMPT, Running, request, vectors_of

PROMPTS = [[(13 * slot + 7 * place) % 512 for place in range(3 + 19 * slot)] for slot in range(6)]
LAST, MEAN = PoolingParams(pooling="last"), PoolingParams(pooling="mean")
KINDS = [
    LAST,
    MEAN,
    PoolingParams(pooling="last", normalize=False),
    PoolingParams(pooling="mean", normalize=False),
]


@pytest.fixture
def expected(transformers_model):
    """Return a function that gives the vector of a prompt."""

    def get(name, prompt, params):
        with torch.inference_mode():
            output = transformers_model(name).model(torch.tensor([prompt]))
        states = output.last_hidden_state[0].double()
        state = states[-1] if params.kind == "last" else states.mean(0)
        return (state / state.norm() if params.is_normalized else state).numpy()

    return get


def pooled(slot, prompt, params):
    return Running(slot, prompt, GREEDY, 0, pooling=params)


@pytest.mark.parametrize("budget", [7, 40, 512])
@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_vectors_beside_generation(name, budget, driver, expected):
    one = driver(name, block_size=8)
    alone = one.generate(PROMPTS[:2], max_tokens=9, budget=512)
    sequences = [pooled(slot, PROMPTS[slot], KINDS[slot % 4]) for slot in range(6)]
    generating = [Running(slot + 6, PROMPTS[slot], GREEDY, 9) for slot in range(2)]
    mixed = [*sequences[:2], generating[0], *sequences[2:4], generating[1], *sequences[4:]]
    results = one.finish(mixed, budget=budget)
    assert [sequence.output for sequence in generating] == alone
    for sequence in sequences:
        vector = expected(name, sequence.prompt, sequence.pooling)
        assert sequence.vector.dtype == np.float32
        np.testing.assert_allclose(sequence.vector, vector, atol=1e-5, rtol=1e-5)
        assert sequence.output == []
    for result in results:
        assert sum(result.counts) == len(result.token_ids)
    assert one.model_runner.audit().slots == tuple(range(8))


def test_answers_come_in_the_order_of_the_plan(llama):
    new = [
        request(0, pooling=LAST, blocks=[0, 1, 2]),
        request(1, blocks=[3, 4, 5]),
        request(2, pooling=MEAN, blocks=[6, 7, 8]),
    ]
    rows = [(slot, 0, 40, 1, 0) for slot in (2, 1, 0)]
    result = llama.run_well(rows, new_sequences=new)
    assert result.slots.tolist() == [2, 1, 0]
    assert result.counts.tolist() == [0, 1, 0]
    assert len(result.token_ids) == 1
    mean, last = vectors_of(result, 2)
    (again,) = vectors_of(
        llama.run_well(
            [(3, 0, 40, 1, 0)], new_sequences=[request(3, pooling=LAST, blocks=[9, 10, 11])]
        )
    )
    np.testing.assert_allclose(again, last, atol=1e-6)
    assert np.abs(mean - last).max() > 0.01


def test_a_chunk_that_is_not_the_last_answers_nothing(llama):
    for slot, params in enumerate((LAST, MEAN)):
        new = request(slot, pooling=params, blocks=[3 * slot, 3 * slot + 1, 3 * slot + 2])
        result = llama.run_well([(slot, 0, 30, 0, 0)], new_sequences=[new])
        assert len(result.slots) == len(result.vectors) == 0


def break_once(patch, owner, name):
    """Make a method fail the next time it is called."""
    method, calls = getattr(owner, name), []

    def broken(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise RuntimeError("broken on purpose")
        return method(*arguments)

    patch.setattr(owner, name, broken)


@pytest.mark.parametrize("place", ["forward", "commit"])
def test_a_chunk_that_failed_is_repeated(place, llama, expected, monkeypatch):
    model_runner = llama.model_runner
    owner = {"forward": model_runner.backend, "commit": model_runner._slots}[place]
    new = request(0, pooling=MEAN)
    llama.run_well([(0, 0, 15, 0, 0)], new_sequences=[new])
    break_once(monkeypatch, owner, place)
    assert llama.run([(0, 15, 15, 0, 0)]).failure is not None
    llama.run_well([(0, 15, 15, 0, 0)])
    result = llama.run_well([(0, 30, 10, 1, 0)])
    np.testing.assert_allclose(vectors_of(result)[0], expected("llama", PROMPT, MEAN), atol=1e-5)


def test_a_first_chunk_that_failed_is_repeated(llama, expected, monkeypatch):
    new = request(0, pooling=MEAN)
    break_once(monkeypatch, llama.model_runner._slots, "commit")
    assert llama.run([(0, 0, 20, 0, 0)], new_sequences=[new]).failure is not None
    llama.run_well([(0, 0, 20, 0, 0)], new_sequences=[new])
    result = llama.run_well([(0, 20, 20, 1, 0)])
    np.testing.assert_allclose(vectors_of(result)[0], expected("llama", PROMPT, MEAN), atol=1e-5)


def test_a_sequence_computed_again_from_its_beginning(llama, expected):
    llama.run_well([(0, 0, 25, 0, 0)], new_sequences=[request(0, pooling=MEAN)])
    llama.run_well([(0, 0, 10, 0, 0)])
    result = llama.run_well([(0, 10, 30, 1, 0)])
    np.testing.assert_allclose(vectors_of(result)[0], expected("llama", PROMPT, MEAN), atol=1e-5)


def test_a_slot_used_again_has_no_sum_and_no_pooling(llama, expected):
    llama.run_well([(0, 0, 15, 0, 0)], new_sequences=[request(0, pooling=MEAN)])
    llama.freed = [0]
    again = llama.run_well([(0, 0, 40, 1, 0)], new_sequences=[request(0, pooling=MEAN)])
    np.testing.assert_allclose(vectors_of(again)[0], expected("llama", PROMPT, MEAN), atol=1e-5)
    llama.freed = [0]
    sampled = llama.run_well([(0, 0, 40, 1, 0)], new_sequences=[request(0)])
    assert sampled.counts.tolist() == [1]
    assert len(sampled.vectors) == 0


def test_a_fork_onto_a_slot_that_pooled_samples(llama):
    llama.run_well([(1, 0, 40, 1, 0)], new_sequences=[request(1, pooling=MEAN)])
    llama.freed = [1]
    fork = {"fork_slots": [1], "fork_sources": [0], "fork_choices": [1]}
    rows = [(0, 0, 40, 1, 0), (1, 40, 0, 1, 0)]
    result = llama.run_well(rows, new_sequences=[request(0)], **fork)
    assert result.counts.tolist() == [1, 1]


def test_no_slots_are_left_behind_when_all_are_dropped(llama):
    llama.run_well([(0, 0, 15, 0, 0)], new_sequences=[request(0, pooling=MEAN)])
    llama.model_runner.drop_slots()
    result = llama.run_well([(0, 0, 40, 1, 0)], new_sequences=[request(0)])
    assert result.counts.tolist() == [1]


def test_a_mean_of_what_a_cache_holds_is_refused(llama):
    llama.run_well([(0, 0, 40, 1, 0)], new_sequences=[request(0)])
    hit = request(1, pooling=MEAN, blocks=[0, 1, 9])
    result = llama.run([(1, 32, 8, 1, 0)], new_sequences=[hit])
    assert "slot 1: a mean from position 32 on, 0 states" in result.failure.message
    assert result.failure.culprit_slots == (1,)


def test_the_last_state_may_come_after_a_prefix_hit(llama, expected):
    llama.run_well([(0, 0, 40, 1, 0)], new_sequences=[request(0)])
    hit = request(1, pooling=LAST, blocks=[0, 1, 9])
    result = llama.run_well([(1, 32, 8, 1, 0)], new_sequences=[hit])
    np.testing.assert_allclose(vectors_of(result)[0], expected("llama", PROMPT, LAST), atol=1e-5)


def test_a_vector_before_the_last_token_is_refused(llama):
    result = llama.run([(0, 0, 39, 1, 0)], new_sequences=[request(0, pooling=LAST)])
    assert "a sample before the last token" in result.failure.message
    assert result.failure.culprit_slots == (0,)


def test_a_fork_of_what_pools_is_refused(llama):
    new = [request(0, pooling=LAST)]
    fork = {"fork_slots": [1], "fork_sources": [0], "fork_choices": [1]}
    result = llama.run([(0, 0, 40, 1, 0), (1, 40, 0, 1, 0)], new_sequences=new, **fork)
    assert "slot 1: its fork source 0 pools" in result.failure.message
    assert result.failure.culprit_slots == (1,)


def test_a_prompt_as_long_as_the_context_gives_a_vector(llama):
    prompt = [place % 500 for place in range(256)]
    new = request(0, prompt=prompt, pooling=MEAN, blocks=range(16))
    result = llama.run_well([(0, 0, 256, 1, 0)], new_sequences=[new])
    assert np.linalg.norm(vectors_of(result)) == pytest.approx(1)


def chunk(params, num_states, end):
    return PoolingChunk(
        slot=0,
        params=params,
        kind=params.kind,
        before=EMPTY_SUM,
        num_states=num_states,
        end=end,
        is_due=True,
    )


def test_zeros_stay_zeros():
    asked = PoolingRows((chunk(LAST, 1, 5), chunk(MEAN, 2, 2)), np.arange(3))
    states = torch.tensor([[0.0, 0.0], [3.0, -1.0], [-3.0, 1.0]])
    assert pool(asked, states).vectors.tolist() == [0.0] * 4


def test_tiny_and_large_states_get_length_1():
    asked = PoolingRows((chunk(LAST, 1, 1), chunk(LAST, 1, 1)), np.arange(2))
    states = torch.tensor([[3e-30, 4e-30], [3e30, 4e30]])
    np.testing.assert_allclose(pool(asked, states).vectors, [0.6, 0.8] * 2, rtol=1e-6)
