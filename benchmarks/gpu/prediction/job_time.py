"""How long the job of nano-vllm takes: all prompts in steps of 16,384 tokens, then its decodes step
by step, as the sequences end."""

from functools import lru_cache

from jobs import Job, nano_vllm_job

from prediction.kernels import Step
from prediction.step_time import MICRO, Model

STEP_TOKENS = 16384
STEPS_OF_A_RUN = 9
"""Steps whose middle one stands for all: they differ by a sequence or two."""

CORE_US, CORE_EACH_US = 35.0, 1.76
"""Of the scheduler's core for a step and for each of its sequences (docs/performance.md: 0.044 ms
with 1 and 0.486 with 256); in one process it shares the thread with the worker."""

SUBMIT_US = 2400.0
"""CPU time of a frontend for a request over gRPC (docs/performance.md)."""

PROCESS_US, PROCESS_EACH_US = 440.0, 7.5
"""The same of a scheduler process with its streams (docs/performance.md: 0.56 ms with 16 sequences
and 2.36 with 256)."""


def job_seconds(model: Model, *, is_served: bool = False) -> float:
    """Return what the job takes."""
    job = _job()
    prompts = _prompt_seconds(model, job)
    if is_served:
        # A frontend takes all requests in turn; steps begin with the first ones.
        prompts = max(prompts, len(job.prompts) * SUBMIT_US * model.costs.core * MICRO)
    decodes = sum(
        count * _step_seconds(model, Step(num_decodes=n, num_context=m, is_sampled=True), is_served)
        for count, n, m in _decodes()
    )
    return prompts + decodes


def job_rate(model: Model, *, is_served: bool = False) -> float:
    """Return output tokens a second."""
    return _job().num_output_tokens / job_seconds(model, is_served=is_served)


def _step_seconds(model: Model, step: Step, is_served: bool) -> float:
    device, host = model.device_seconds(step), model.host_seconds(step)
    if not is_served:
        core = CORE_US + CORE_EACH_US * step.num_decodes
        return max(device, host + core * model.costs.core * MICRO)
    scheduler = (PROCESS_US + PROCESS_EACH_US * step.num_decodes) * model.costs.core * MICRO
    around = host + scheduler + 2 * model.costs.hop_us * MICRO
    # Two steps are under way: the second one hides what is around the first.
    return max(device, host, scheduler, (device + around) / 2)


def _prompt_seconds(model: Model, job: Job) -> float:
    """Return what all prompts take, in steps of whole ones."""
    total, waiting = 0.0, list(job.prompt_lens)
    while waiting:
        taken: list[int] = []
        while waiting and sum(taken) + waiting[0] <= STEP_TOKENS:
            taken.append(waiting.pop(0))
        total += model.wall_seconds(Step(prompts=tuple(taken), is_sampled=True))
    return total


@lru_cache(maxsize=1)
def _job() -> Job:
    return nano_vllm_job()


def most_tokens() -> int:
    """Return how many tokens the cache holds at most."""
    return max(num_context for *_, num_context in _decodes())


@lru_cache(maxsize=1)
def _decodes() -> list[tuple[int, int, int]]:
    """Return runs of steps: how many, and of the one in their middle how many sequences decode and
    how many tokens these see."""
    job = _job()
    pairs = list(zip(job.prompt_lens, job.output_lens, strict=True))
    found = []
    end = max(job.output_lens)
    for first in range(1, end, STEPS_OF_A_RUN):
        last = min(first + STEPS_OF_A_RUN, end) - 1
        middle = (first + last) // 2
        running = [prompt + middle for prompt, output in pairs if output > middle]
        found.append((last + 1 - first, len(running), sum(running)))
    return found
