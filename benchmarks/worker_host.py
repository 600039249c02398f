"""What a worker's host adds to a decode step: everything but the model.

    python benchmarks/worker_host.py --batch 1 64 256

An executor runs plans over a model that returns zeros at once, so that what is left is applying the
plan, assembling the batch, picking sampling parameters, and packing the result. On a GPU that time
passes while the device works on the step before; a step that takes less than it waits for the host.
Launches of the device are not part of it; `gpu/predict.py --measure-host` has these as well.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from parts.machine import describe
from torch import Tensor

from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.plan import NewSequence, StepPlan
from pagewire_worker.backend.adapters import AdapterRows
from pagewire_worker.backend.backend import StepBatch
from pagewire_worker.backend.sampled_tokens import SampledTokens
from pagewire_worker.batch.slots import SlotLimits
from pagewire_worker.kv.kv_cache import CacheShape, KvCache
from pagewire_worker.runner.model_runner import ModelRunner
from pagewire_worker.sampling.grammar_bitmask import GrammarBitmask
from pagewire_worker.sampling.sampling_table import SamplingRows

CPU = torch.device("cpu")
VOCAB_SIZE, BLOCK_SIZE, PROMPT = 32, 16, 16
NUM_STEPS, NUM_WARM_UPS, REPEATS = 200, 50, 7
MAX_LEN = PROMPT + NUM_WARM_UPS + NUM_STEPS * REPEATS + 1
KINDS = {
    "greedy": SamplingParams(temperature=0.0, max_tokens=None),
    "sampled, top-p 0.9": SamplingParams(temperature=0.6, seed=1, top_p=0.9, max_tokens=None),
}


class NoModel:
    """A ModelBackend that computes nothing."""

    kernel_set = "none"
    is_exact = False
    embedding_size = 1

    def __init__(self, num_blocks: int) -> None:
        self.kv_cache = KvCache(
            shape=CacheShape(1, 1, 1),
            num_blocks=num_blocks,
            block_size=BLOCK_SIZE,
            device=CPU,
            dtype=torch.float32,
        )

    def forward(self, batch: StepBatch) -> Tensor:
        """Return states of zeros."""
        return torch.zeros(len(batch.output_rows), 1)

    def greedy(self, hidden: Tensor, adapters: AdapterRows | None = None) -> SampledTokens:
        """Return token 0."""
        return zeros(len(hidden))

    def logits(self, hidden: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        """Return zeros."""
        return torch.zeros(len(hidden), VOCAB_SIZE)


def first_tokens(
    logits: Tensor, rows: SamplingRows, masks: GrammarBitmask | None = None
) -> SampledTokens:
    """Choose token 0 in every row."""
    return zeros(len(logits))


def zeros(num_rows: int) -> SampledTokens:
    """Return token 0 for every row, none of which is at fault."""
    token_ids, faults = torch.zeros((2, num_rows), dtype=torch.int64)
    return SampledTokens(token_ids, faults=faults)


def plans(batch: int, sampling: SamplingParams) -> Iterator[StepPlan]:
    """Yield a prompt's plan, and then those of decodes."""
    each = -(-MAX_LEN // BLOCK_SIZE)
    slots = np.arange(batch, dtype=np.uint32)
    new = [
        NewSequence(
            slot=slot,
            request_id=slot.to_bytes(16, "little"),
            choice=0,
            prompt_token_ids=[1] * PROMPT,
            emitted_token_ids=[],
            sampling=sampling,
            block_ids=list(range(slot * each, (slot + 1) * each)),
        )
        for slot in range(batch)
    ]
    start, length, step_id = 0, PROMPT, 1
    while True:
        yield StepPlan(
            generation=0,
            incarnation=0,
            step_id=step_id,
            new_sequences=new,
            slots=slots,
            starts=np.full(batch, start, np.uint32),
            num_new_tokens=np.full(batch, length, np.uint32),
            samples=np.ones(batch, np.uint8),
            num_new_blocks=np.zeros(batch, np.uint32),
        )
        new, start, length, step_id = [], start + length, 1, step_id + 1


def microseconds(
    batch: int, sampling: SamplingParams, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Return the time per step of each of REPEATS runs."""
    num_blocks = batch * -(-MAX_LEN // BLOCK_SIZE)
    limits = SlotLimits(
        num_slots=batch,
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        max_model_len=MAX_LEN,
        vocab_size=VOCAB_SIZE,
    )
    model_runner = ModelRunner(
        backend=NoModel(num_blocks),
        limits=limits,
        max_num_batched_tokens=batch * PROMPT,
        device=CPU,
        steps_in_flight=2,
        sampler=first_tokens,
    )
    source = plans(batch, sampling)

    def run(num_steps: int) -> float:
        made = [next(source) for _ in range(num_steps)]
        began = clock()
        for plan in made:
            assert model_runner.run(plan).failure is None
        return (clock() - began) / num_steps * 1e6

    run(1 + NUM_WARM_UPS)
    return [run(NUM_STEPS) for _ in range(REPEATS)]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16, 64, 256])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(describe())
    print(f"\n| sequences | {' | '.join(f'{kind}, us' for kind in KINDS)} |")
    print("| --- |" + " --- |" * len(KINDS))
    for batch in arguments.batch:
        cells = []
        for sampling in KINDS.values():
            times = sorted(microseconds(batch, sampling))
            cells.append(f"{statistics.median(times):.0f} ({times[0]:.0f}..{times[-1]:.0f})")
        print(f"| {batch} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
