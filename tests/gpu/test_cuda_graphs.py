"""Captured decodes on a CUDA device: what is captured computes what is not."""

from pathlib import Path
from typing import Any

import pytest
import torch

from pagewire import LLM, SamplingParams
from support.cells.worker_driver import GREEDY, Driver, Running, load
from support.oracles.golden_cases import make_golden_checkpoint, make_prompts

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(500)]

SETTINGS: dict[str, Any] = {
    "device": "cuda",
    "max_model_len": 720,
    "max_num_seqs": 12,
    "kv_cache_memory": 2**28,
    "max_num_batched_tokens": 2048,
}

TOLERANCES: dict[str, dict[str, float]] = {
    "float32": {"rtol": 1e-4, "atol": 1e-4},
    "bfloat16": {"rtol": 5e-2, "atol": 5e-2},
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_graphs_compute_what_single_launches_do(tmp_path: Path, name: str, dtype: str) -> None:
    """States of a graph against those of the same batch without one, for each size of a batch."""
    folder = make_golden_checkpoint(tmp_path, name)
    replica = load(folder, **SETTINGS, dtype=dtype)
    backend = replica.model_runner.backend
    graphs, num_checked = backend._graphs, 0
    assert graphs is not None
    run = graphs.run

    def checked(batch: Any) -> torch.Tensor:
        nonlocal num_checked
        eager = backend._eager.forward(batch)
        # It writes the same keys and values to the same places.
        hidden: torch.Tensor = run(batch)
        # Not bit for bit: products of padded batches may be computed by other instructions.
        torch.testing.assert_close(hidden, eager, **TOLERANCES[dtype])
        num_checked += 1
        return hidden

    graphs.run = checked
    driver = Driver.of(replica)
    prompts = make_prompts()[:11]
    sequences = [Running(slot, prompt, GREEDY, 3 + slot) for slot, prompt in enumerate(prompts)]
    driver.finish(sequences, budget=2048)
    # The first token of each comes from its prompt.
    assert num_checked == 12


def test_tokens_do_not_depend_on_graphs(tmp_path: Path) -> None:
    folder = make_golden_checkpoint(tmp_path, "llama")
    prompts = [{"prompt_token_ids": prompt} for prompt in make_prompts()]
    params = [
        SamplingParams(temperature=0.9 * (row % 2), seed=row, top_p=0.9, max_tokens=24)
        for row in range(len(prompts))
    ]
    found = []
    for enforce_eager in (False, True):
        with LLM(
            str(folder),
            device="cuda",
            dtype="float32",
            enforce_eager=enforce_eager,
            max_model_len=720,
            kv_cache_memory="256MiB",
        ) as llm:
            outputs = llm.generate(prompts, params, use_tqdm=False)
        found.append([output.outputs[0].token_ids for output in outputs])
    assert found[0] == found[1]


def test_a_launch_does_not_wait_for_the_device(tmp_path: Path) -> None:
    """A busy device is still busy when the next steps are launched."""
    replica = load(make_golden_checkpoint(tmp_path, "llama"), **SETTINGS, steps_in_flight=2)
    driver = Driver.of(replica)
    running = Running(0, make_prompts()[0], GREEDY, 8)
    driver.step([running], 2048)
    driver.step([running], 2048)
    torch.cuda.synchronize()
    torch.cuda._sleep(300_000_000)
    end = running.num_tokens
    plans = [driver.plan([(0, end - 1 + place, 1, 1, 0)]) for place in range(2)]
    steps = [replica.model_runner.launch(plan) for plan in plans]
    assert not any(step.is_done for step in steps)
    assert all(len(replica.model_runner.collect(step).token_ids) == 1 for step in steps)
