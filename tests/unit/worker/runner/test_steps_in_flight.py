"""Steps that are launched while the device still works on others."""

import pytest

from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams
from pagewire_worker.runner.readback import DeviceLostError
from support.cells.worker_driver import GREEDY, PROMPT, Running, request
from support.fakes.scripted_masks import ScriptedMasks
from support.kernels.held_readback import HeldReadback

WORDS = b"words of a page."
SCRIPTS = {WORDS: [{3}, {31}, {64}, {1}]}
LOGPROBS = SamplingParams(temperature=0.0, max_tokens=None, logprobs=2)


@pytest.fixture
def readback():
    return HeldReadback()


@pytest.fixture
def held(driver, readback):
    """A Driver of a device that is slow."""
    one = driver("llama", steps_in_flight=2)
    one.model_runner._readback = readback
    return one


def launch(driver, rows, **fields):
    return driver.model_runner.launch(driver.plan(rows, **fields))


def decode(place):
    return [(0, len(PROMPT) + place, 1, 1, 0)]


def test_a_step_feeds_the_next_one_before_anybody_has_read_it(driver, held, readback):
    (expected,) = driver("llama").generate([PROMPT], max_tokens=5)
    readback.is_free = False
    steps = [launch(held, [(0, 0, len(PROMPT), 1, 0)], new_sequences=[request(0)])]
    steps += [launch(held, decode(place)) for place in range(4)]
    assert not any(step.is_done for step in steps)
    for event in readback.events:
        event.come()
    tokens = [int(held.model_runner.collect(step).token_ids[0]) for step in steps]
    assert tokens == expected


def test_results_come_in_any_order_of_asking(held, readback):
    steps = [launch(held, [(0, 0, len(PROMPT), 1, 0)], new_sequences=[request(0)])]
    steps += [launch(held, decode(place)) for place in range(3)]
    last = held.model_runner.collect(steps[-1])
    assert all(step.result is not None for step in steps)
    assert held.model_runner.collect(steps[0]).step_id == last.step_id - 3


def test_waiting_for_a_step_waits_for_its_device(held, readback):
    readback.is_free = False
    step = launch(held, [(0, 0, len(PROMPT), 1, 0)], new_sequences=[request(0)])
    assert not step.is_done
    readback.events[0].come()
    step.wait()
    assert step.is_done
    assert held.model_runner.collect(step).model_time_us > 0


@pytest.mark.parametrize("sampling", [LOGPROBS, SamplingParams(seed=4, max_tokens=None)])
def test_what_is_sampled_late_is_what_is_sampled_at_once(driver, held, readback, sampling):
    def outcome(one):
        prompt = request(0, sampling=sampling)
        steps = [launch(one, [(0, 0, len(PROMPT), 1, 0)], new_sequences=[prompt])]
        steps += [launch(one, decode(place)) for place in range(3)]
        results = [one.model_runner.collect(step) for step in steps]
        fields = ("token_ids", "logprobs", "ranks", "num_top", "top_token_ids", "top_logprobs")
        return [[list(getattr(result, name)) for name in fields] for result in results]

    assert outcome(held) == outcome(driver("llama"))
    assert len(readback.events) == 4


def test_a_plan_that_fails_behind_a_step_in_flight_leaves_it_alone(driver, held, readback):
    (expected,) = driver("llama").generate([PROMPT], max_tokens=3)
    readback.is_free = False
    first = launch(held, [(0, 0, len(PROMPT), 1, 0)], new_sequences=[request(0)])
    broken = launch(held, [(0, 200, 1, 1, 0)])
    assert broken.is_done
    assert held.model_runner.collect(broken).failure is not None
    second = launch(held, decode(0))
    for event in readback.events:
        event.come()
    tokens = [int(held.model_runner.collect(step).token_ids[0]) for step in (first, second)]
    assert tokens == expected[:2]


def test_masks_wait_for_the_step_before_and_the_forward_pass_does_not(held, readback, monkeypatch):
    masks = ScriptedMasks(dict(SCRIPTS))
    held.model_runner._grammars = masks
    forward = held.model_runner.backend.forward

    def noted(batch):
        masks.calls.append(("forward",))
        return forward(batch)

    monkeypatch.setattr(held.model_runner.backend, "forward", noted)
    prompt = request(0, grammar_id=WORDS)
    steps = [launch(held, [(0, 0, len(PROMPT), 1, 0)], new_sequences=[prompt])]
    masks.calls.clear()
    steps.append(launch(held, decode(0)))
    assert [call[0] for call in masks.calls] == ["forward", "accept", "begin", "wait"]
    steps.append(launch(held, decode(1)))
    assert [int(held.model_runner.collect(step).token_ids[0]) for step in steps] == [3, 31, 64]


def test_a_step_whose_states_are_read_is_over_with_its_launch(held, readback):
    (vector,) = [Running(1, PROMPT, GREEDY, 1, pooling=PoolingParams(pooling="mean"))]
    held.finish([vector], budget=16)
    assert vector.vector is not None
    asked = request(0, sampling=SamplingParams(prompt_logprobs=1, temperature=0, max_tokens=None))
    step = launch(held, [(0, 0, len(PROMPT), 1, 0)], new_sequences=[asked])
    assert step.result is not None
    assert len(step.result.prompt.logprobs) == len(PROMPT) - 1


def test_slots_are_dropped_only_when_the_device_is_done_with_them(held, readback):
    steps = [launch(held, [(0, 0, len(PROMPT), 1, 0)], new_sequences=[request(0)])]
    steps.append(launch(held, decode(0)))
    held.model_runner.drop_slots()
    assert all(step.result is not None for step in steps)
    assert held.model_runner.audit().slots == ()


def test_a_device_that_fails_under_a_step_is_lost(held, readback):
    readback.is_free = False
    step = launch(held, [(0, 0, len(PROMPT), 1, 0)], new_sequences=[request(0)])
    readback.events[0].come(RuntimeError("an illegal memory access"))
    with pytest.raises(DeviceLostError, match=r"step 1: an illegal memory access"):
        held.model_runner.collect(step)


def test_a_device_that_takes_no_work_is_lost(held, readback, monkeypatch):
    monkeypatch.setattr(held.model_runner.backend, "forward", lambda batch: 1 / 0)
    prompt = request(0)
    assert launch(held, [(0, 0, 40, 1, 0)], new_sequences=[prompt]).result.failure is not None
    readback.has_failed = True
    with pytest.raises(DeviceLostError, match="step 2"):
        launch(held, [(0, 0, 40, 1, 0)], new_sequences=[prompt])
