"""How long the scheduler core takes per step of steady decode: plan, encode, decode, apply, tokens.

`python benchmarks/scheduler_core.py` prints milliseconds per step by running sequences, by context
length and by pool size, and what stands still beside them (`scheduler_rows.py`); `--profile` where
the time goes. Results are in docs/performance.md.
"""

import argparse
import asyncio
import cProfile
import pstats
import statistics
import time
from dataclasses import dataclass, field

from parts.scheduler_rows import print_rows

from pagewire_protos.scheduler.v1 import worker_attach_pb2 as pb
from pagewire_scheduler.convert.frontend import token_batch
from pagewire_scheduler.core.data.events import TokensEvent
from pagewire_scheduler.core.data.settings import CoreSettings
from pagewire_scheduler.core.data.submission import Submission
from pagewire_scheduler.core.data.worker_info import ModelInfo, WorkerInfo
from pagewire_scheduler.core.scheduler_core import SchedulerCore
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.kv.arrays import pack_u32
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.convert import plan_to_message, result_from_message
from pagewire_shared.steps.plan import StepPlan

BLOCK_SIZE = 16
GENERATION = 1
FRONTEND = bytes(16)
WORKER = bytes([1]) * 16


@dataclass(slots=True)
class Times:
    """Seconds per part of a step, one entry per step."""

    plan: list[float] = field(default_factory=list)
    encode: list[float] = field(default_factory=list)
    apply: list[float] = field(default_factory=list)
    tokens: list[float] = field(default_factory=list)

    def mean_ms(self) -> list[float]:
        """Return the mean of each part, and of the whole step, in milliseconds.

        Not the median: sequences that began together fill and name their blocks together, in one
        step of sixteen.
        """
        parts = [self.plan, self.encode, self.apply, self.tokens]
        whole = [sum(step) for step in zip(*parts, strict=True)]
        return [1000 * statistics.fmean(part) for part in (*parts, whole)]


def core_with(num_running: int, num_prompt: int, num_blocks: int) -> SchedulerCore:
    """Return a core with `num_running` requests of `num_prompt` tokens, submitted and not begun."""
    core = SchedulerCore(CoreSettings(generation=GENERATION))
    core.attach_frontend(FRONTEND, [], is_same_generation=False)
    model = ModelInfo(
        name="bench",
        model_fingerprint=b"m" * 32,
        tokenizer_fingerprint=b"t" * 32,
        max_model_len=1_000_000,
        vocab_size=32_000,
        block_size=BLOCK_SIZE,
    )
    core.attach_worker(
        WorkerInfo(
            worker_id=WORKER,
            incarnation=1,
            model=model,
            layout_fingerprint=b"l" * 16,
            dtype="bfloat16",
            num_blocks=num_blocks,
            max_num_seqs=num_running,
            max_num_batched_tokens=8192,
            steps_in_flight=2,
        )
    )
    for number in range(num_running):
        core.submit(
            FRONTEND,
            Submission(
                request_id=RequestId(number.to_bytes(16, "little")),
                epoch=0,
                handle=number,
                model="bench",
                prompt_token_ids=tuple((number * 31 + i) % 32_000 for i in range(num_prompt)),
                emitted=((),),
                is_finished=(False,),
                sampling=SamplingParams(max_tokens=4096, ignore_eos=True),
            ),
            0.0,
        )
    return core


def answer(plan: StepPlan) -> pb.StepResult:
    """Return what a worker would send: a token per sampled slot."""
    slots = [slot for slot, sample in zip(plan.slots, plan.samples, strict=True) if sample]
    return pb.StepResult(
        generation=plan.generation,
        incarnation=plan.incarnation,
        step_id=plan.step_id,
        slots=pack_u32(slots),
        counts=pack_u32([1] * len(slots)),
        token_ids=pack_u32([7] * len(slots)),
    )


def run_steps(
    core: SchedulerCore, plans: list[StepPlan], num_steps: int, times: Times | None = None
) -> None:
    """Run steps with two in flight, `plans` being those unanswered; the worker answers at once."""
    clock = time.perf_counter
    for _ in range(num_steps):
        planned = clock()
        while (plan := core.plan(WORKER)) is not None:
            plans.append(plan)
        encoded = clock()
        message = plan_to_message(plans[-1]).SerializeToString()
        done = clock()
        assert message
        result = answer(plans.pop(0)).SerializeToString()
        received = clock()
        events = core.apply(WORKER, result_from_message(pb.StepResult.FromString(result)))
        applied = clock()
        token_batch([one for one in events if isinstance(one, TokensEvent)]).SerializeToString()
        sent = clock()
        if times is not None:
            times.plan.append(encoded - planned)
            times.encode.append(done - encoded)
            times.apply.append(applied - received)
            times.tokens.append(sent - applied)


def measure(num_running: int, num_prompt: int, num_blocks: int, num_steps: int) -> Times:
    """Return the times of `num_steps` steps in which every sequence decodes."""
    core = core_with(num_running, num_prompt, num_blocks)
    plans: list[StepPlan] = []
    worker = core.workers[WORKER]
    while len(worker.running) < num_running or any(
        sequence.num_to_compute > 1 for sequence in worker.running
    ):
        run_steps(core, plans, 1)
    run_steps(core, plans, 20)
    times = Times()
    run_steps(core, plans, num_steps, times)
    return times


def main() -> None:
    """Read the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--profile", action="store_true", help="where the time goes, at 256")
    arguments = parser.parse_args()
    print("running  prompt   blocks |   plan encode  apply tokens | step, ms (mean)")
    cases = [
        (1, 100, 20_000),
        (64, 100, 20_000),
        (256, 100, 100_000),
        (256, 1600, 100_000),
        (256, 100, 400_000),
        (1024, 100, 400_000),
    ]
    for num_running, num_prompt, num_blocks in cases:
        times = measure(num_running, num_prompt, num_blocks, arguments.steps)
        *means, whole = times.mean_ms()
        parts = " ".join(f"{value:6.3f}" for value in means)
        print(f"{num_running:7d} {num_prompt:7d} {num_blocks:8d} | {parts} | {whole:.3f}")
    asyncio.run(print_rows())
    if arguments.profile:
        core = core_with(256, 100, 100_000)
        plans: list[StepPlan] = []
        run_steps(core, plans, 40)
        with cProfile.Profile() as profile:
            run_steps(core, plans, 300)
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
