"""Plans that contradict themselves, and steps that break: what fails, what is undone, what goes
on."""

import pytest
import torch

from pagewire_shared.sampling.params import SamplingParams
from support.cells.worker_driver import PROMPT, Driver, request, start

BAD_PLANS = {
    "slot is taken": {"new_sequences": [request(0)], "rows": [(0, 0, 8, 0, 0)]},
    "not known": {"rows": [(0, 42, 1, 1, 0)]},
    "too few blocks": {"rows": [(5, 0, 40, 1, 0)], "new_sequences": [request(5, blocks=[9])]},
    "unknown slot": {"rows": [(9, 0, 1, 1, 0)]},
    "slot beyond the last": {"rows": [(4000, 0, 1, 1, 0)]},
    "token id": {"rows": [(5, 0, 1, 0, 0)], "new_sequences": [request(5, prompt=[512])]},
    "block id": {"rows": [(5, 0, 1, 0, 0)], "new_sequences": [request(5, blocks=[10**6])]},
    "nothing to compute": {"rows": [(0, 40, 0, 0, 0)]},
    "sample too early": {"rows": [(5, 0, 8, 1, 0)], "new_sequences": [request(5)]},
    "over budget": {"rows": [(5, 0, 600, 1, 0)], "new_sequences": [request(5)]},
    "new but not scheduled": {"rows": [(0, 40, 1, 1, 0)], "new_sequences": [request(5)]},
    "without a seed": {
        "rows": [(5, 0, 40, 1, 0)],
        "new_sequences": [request(5, sampling=SamplingParams(max_tokens=None))],
    },
}


@pytest.mark.parametrize("name", BAD_PLANS)
def test_a_contradictory_plan_fails_and_changes_nothing(name, llama):
    (expected,) = llama.generate([PROMPT], max_tokens=3)
    first = start(llama)
    fields = dict(BAD_PLANS[name])
    result = llama.run(fields.pop("rows"), **fields)
    assert result.failure is not None
    assert len(result.slots) == 0
    assert llama.model_runner.audit().slots == (0,)
    second = llama.run([(0, len(PROMPT), 1, 1, 0)])
    assert [*first.token_ids, *second.token_ids] == expected[:2]


def test_a_culprit_is_named(llama):
    requests = [request(0), request(1, prompt=[9999], blocks=[4])]
    result = llama.run([(0, 0, 40, 1, 0), (1, 0, 1, 1, 0)], new_sequences=requests)
    assert result.failure.culprit_slots == (1,)


def test_a_step_that_breaks_in_the_model_is_undone(llama, monkeypatch):
    (expected,) = llama.generate([PROMPT], max_tokens=3)
    start(llama)
    forward = llama.model_runner.backend.forward

    def broken(batch):
        raise RuntimeError("out of\nmemory")

    monkeypatch.setattr(llama.model_runner.backend, "forward", broken)
    grown = llama.run(
        [(0, len(PROMPT), 1, 1, 1), (1, 0, 40, 1, 0)],
        new_sequences=[request(1, blocks=[4, 5, 6])],
        new_block_ids=[3],
        named_blocks=[4],
        names=[b"x" * 16],
    )
    assert grown.failure.message == "RuntimeError: out of memory"
    assert llama.model_runner.audit().slots == (0,)
    assert llama.model_runner.audit().num_blocks_in_tables == 3
    assert llama.model_runner.blocks.held_names() == {}
    # The step planned on top of the failed one fails too: its token was never sampled.
    assert llama.run([(0, len(PROMPT) + 1, 1, 1, 0)]).failure is not None
    monkeypatch.setattr(llama.model_runner.backend, "forward", forward)
    results = [llama.run([(0, len(PROMPT) + i, 1, 1, 0)]) for i in range(2)]
    assert [int(r.token_ids[0]) for r in results] == expected[1:]


def test_a_failed_chunk_fails_the_chunk_behind_it(llama, monkeypatch):
    llama.run([(0, 0, 10, 0, 0)], new_sequences=[request(0)])
    forward = llama.model_runner.backend.forward
    monkeypatch.setattr(llama.model_runner.backend, "forward", lambda batch: 1 / 0)
    assert llama.run([(0, 10, 10, 0, 0)]).failure is not None
    monkeypatch.setattr(llama.model_runner.backend, "forward", forward)
    assert "computed" in llama.run([(0, 20, 10, 0, 0)]).failure.message
    llama.run_well([(0, 10, 30, 1, 0)])


def test_the_last_position_of_the_context(driver):
    one = driver("llama", max_model_len=48)
    (output,) = one.generate([PROMPT], max_tokens=8)
    assert len(output) == 8
    start(one)
    for i in range(8):
        one.run_well([(0, len(PROMPT) + i, 1, 1, 0)])
    assert one.run([(0, 48, 1, 1, 0)]).failure is not None


def test_no_position_behind_the_context_is_computed(driver):
    """It has no row in the tables of angles, wherever the last block ends."""
    one = driver("llama", max_model_len=42)
    (expected,) = one.generate([PROMPT], max_tokens=2)
    start(one)
    one.run_well([(0, 40, 1, 1, 0)])
    one.run_well([(0, 41, 1, 1, 0)])
    for samples in (0, 1):
        result = one.run([(0, 42, 1, samples, 0)])
        assert "behind the context" in result.failure.message
        assert result.failure.culprit_slots == (0,)
    assert len(expected) == 2


def test_progress_advances_per_layer(checkpoint):
    from pagewire_worker.config import WorkerConfig
    from pagewire_worker.loading.loader import load_replica

    layers = []
    config = WorkerConfig(model=str(checkpoint("llama")), max_model_len=128, cpu_threads=1)
    loaded = load_replica(config, on_layer=lambda: layers.append(1))
    num_before = len(layers)
    assert num_before > 0
    start(Driver.of(loaded))
    assert len(layers) - num_before == 2


def test_gradients_are_off(llama):
    start(llama)
    assert not llama.model_runner.backend.kv_cache.layers[0].key.requires_grad
    assert torch.is_inference(llama.model_runner.backend.kv_cache.layers[0].key)


def test_steps_planned_before_a_failure_was_known_give_no_names(driver, monkeypatch):
    one = driver("llama", steps_in_flight=2)
    forward = one.model_runner.backend.forward
    monkeypatch.setattr(one.model_runner.backend, "forward", lambda batch: 1 / 0)
    names = {"named_blocks": [0], "names": [b"a" * 16]}
    failed = one.run([(0, 0, 16, 0, 0)], new_sequences=[request(0)], **names)
    assert failed.failure is not None
    monkeypatch.setattr(one.model_runner.backend, "forward", forward)
    # Shares block 0, which the failed step never wrote, and would name block 5 after it.
    suspect = {"named_blocks": [5], "names": [b"b" * 16]}
    one.run([(1, 16, 24, 1, 0)], new_sequences=[request(1, blocks=[0, 5, 6])], **suspect)
    assert one.model_runner.blocks.held_names() == {}
    one.run([(2, 0, 16, 0, 0)], new_sequences=[request(2, blocks=[7, 8, 9])], **names)
    assert one.model_runner.blocks.held_names() == {0: b"a" * 16}
