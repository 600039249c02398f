"""The job that nano-vllm and mini-sglang measure themselves with in their bench.py."""

import random
from dataclasses import dataclass

NUM_REQUESTS = 256
NUM_PROMPT_TOKENS = 142_827
NUM_OUTPUT_TOKENS = 133_966
TEMPERATURE = 0.6


@dataclass(frozen=True, slots=True)
class Job:
    """Requests that are submitted at once: prompts, and how many tokens each generates."""

    prompts: list[list[int]]
    output_lens: list[int]

    @property
    def prompt_lens(self) -> list[int]:
        """Tokens of each prompt."""
        return [len(prompt) for prompt in self.prompts]

    @property
    def num_output_tokens(self) -> int:
        """Tokens that are generated in all."""
        return sum(self.output_lens)


def nano_vllm_job() -> Job:
    """Return the job: the same draws of Python's generator in the same order."""
    dice = random.Random(0)
    prompts = [
        [dice.randint(0, 10000) for _ in range(dice.randint(100, 1024))]
        for _ in range(NUM_REQUESTS)
    ]
    job = Job(prompts, [dice.randint(100, 1024) for _ in range(NUM_REQUESTS)])
    assert sum(job.prompt_lens) == NUM_PROMPT_TOKENS
    assert job.num_output_tokens == NUM_OUTPUT_TOKENS
    return job


def toy_job(vocab: int) -> Job:
    """Return a few short requests."""
    dice = random.Random(0)
    prompts = [[dice.randrange(vocab) for _ in range(dice.randint(3, 20))] for _ in range(2)]
    return Job(prompts, [dice.randint(2, 4) for _ in range(2)])
