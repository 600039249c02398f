"""What choosing tokens costs on a CPU: the kernels beside torch's ops, and a model's steps.

python benchmarks/cpu/sampling.py                 # logits of 151,936 tokens
python benchmarks/cpu/sampling.py --model FOLDER  # sampled decoding by greedy decoding
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch

from pagewire import LLM, SamplingParams
from pagewire_shared.steps.plan import NewSequence
from pagewire_worker.cpu_kernels.library import KernelPool
from pagewire_worker.cpu_kernels.sampler import KernelSampler
from pagewire_worker.sampling.sampler import sample
from pagewire_worker.sampling.sampling_table import SamplingRows, SamplingTable

VOCAB_SIZE = 151_936
NUM_REPEATS = 5
NUM_TOKENS = 48
SETTINGS: dict[str, dict[str, Any]] = {
    "temperature 1": {"temperature": 1.0},
    "temperature 0.7, top_p 0.9": {"temperature": 0.7, "top_p": 0.9},
    "temperature 0.7, top_k 20, top_p 0.8": {"temperature": 0.7, "top_k": 20, "top_p": 0.8},
    "temperature 1, min_p 0.05": {"temperature": 1.0, "min_p": 0.05},
}
SPREADS = {"flat": 1.0, "peaked": 4.0}
"""Standard deviations of logits; those of random weights are flat."""


def rows_of(num_rows: int, settings: dict[str, Any]) -> SamplingRows:
    """Return rows with these settings, each with a seed of its own."""
    table = SamplingTable(num_rows, torch.device("cpu"))
    for slot in range(num_rows):
        table.set(
            NewSequence(
                slot=slot,
                request_id=b"",
                choice=0,
                prompt_token_ids=[1],
                emitted_token_ids=[],
                sampling=SamplingParams(max_tokens=None, seed=slot, **settings),
                block_ids=[],
            )
        )
    return table.rows(np.arange(num_rows), np.arange(num_rows))


def milliseconds(*calls: Callable[[], object]) -> list[float]:
    """Return the median time of each call; they run in turn."""
    times: list[list[float]] = [[] for _ in calls]
    for number in range(NUM_REPEATS + 1):
        for call, own in zip(calls, times, strict=True):
            began = time.perf_counter()
            call()
            if number:  # the first round warms up
                own.append(1000 * (time.perf_counter() - began))
    return [median(one) for one in times]


@torch.inference_mode()
def show_rows(num_threads: int) -> None:
    """Print the time of a call for some rows, by torch and by the kernels."""
    torch.set_num_threads(num_threads)
    by_kernels = KernelSampler(KernelPool(num_threads))
    print(f"{'settings':38} {'logits':7} {'rows':>4} {'torch':>9} {'kernels':>9}")
    for name, settings in SETTINGS.items():
        for spread, scale in SPREADS.items():
            for num_rows in (1, 16, 64):
                logits = torch.randn(num_rows, VOCAB_SIZE) * scale
                rows = rows_of(num_rows, settings)
                old, new = milliseconds(
                    partial(sample, logits, rows), partial(by_kernels, logits, rows)
                )
                times = f"{old:6.1f} ms {new:6.1f} ms {old / new:6.1f}"
                print(f"{name:38} {spread:7} {num_rows:4} {times}", flush=True)


def show_model(folder: str) -> None:
    """Print the time of sampled decoding by that of greedy decoding of the same prompts."""
    with LLM(folder, enable_prefix_caching=False, kv_offload="off", max_model_len=1024) as llm:
        for num_streams in (1, 16, 64):
            prompts = [list(range(number, number + 32)) for number in range(num_streams)]

            def run(prompts: list[list[int]] = prompts, **settings: Any) -> None:
                params = SamplingParams(max_tokens=NUM_TOKENS, ignore_eos=True, seed=1, **settings)
                llm.generate([{"prompt_token_ids": one} for one in prompts], params, use_tqdm=False)

            calls = [partial(run, **own) for own in ({"temperature": 0.0}, *SETTINGS.values())]
            greedy, *sampled = milliseconds(*calls)
            print(f"{num_streams} streams, greedy: {greedy / NUM_TOKENS:.1f} ms a step", flush=True)
            for name, spent in zip(SETTINGS, sampled, strict=True):
                print(f"  {name:38} {spent / greedy:.2f} times as long", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", metavar="FOLDER")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    if arguments.model:
        show_model(arguments.model)
    else:
        show_rows(arguments.threads)


if __name__ == "__main__":
    main()
