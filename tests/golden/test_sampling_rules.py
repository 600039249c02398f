"""Tokens under all sampling rules equal plain formulas over transformers' logits, through the
scheduler, the wire and the executor, with preemptions and steps in flight."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from pagewire_shared.steps.plan import StepPlan
from support.cells.engine import Engine, Setup
from support.checkpoints.checkpoints import make_checkpoint
from support.oracles.plain_outputs import expected_tokens, ruled_params

NUM_TOKENS = 40
PROMPTS = [[(31 * row + 7 * place) % 512 for place in range(6 + 5 * row)] for row in range(16)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("ruled"), with_tokenizer=False)


@pytest.mark.parametrize(
    ("steps_in_flight", "reads_late"), [(1, False), (2, False), (4, False), (2, True), (4, True)]
)
def test_ruled_tokens_equal_plain_formulas(
    folder: Path, steps_in_flight: int, reads_late: bool
) -> None:
    setup = Setup(
        block_size=8,
        # Half of what all need at their full length.
        num_blocks=90,
        max_num_batched_tokens=64,
        is_caching=True,
        steps_in_flight=steps_in_flight,
        reads_late=reads_late,
    )
    num_resumed = 0

    def count_resumed(engine: Engine, plan: StepPlan) -> None:
        nonlocal num_resumed
        num_resumed += sum(len(new.emitted_token_ids) > 0 for new in plan.new_sequences)

    samplings = [ruled_params(row).with_(max_tokens=NUM_TOKENS) for row in range(len(PROMPTS))]
    outputs = Engine(folder, setup, count_resumed).generate(PROMPTS, samplings)
    assert num_resumed > 0
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    for prompt, output, sampling in zip(PROMPTS, outputs, samplings, strict=True):
        assert len(output) == NUM_TOKENS
        assert output == expected_tokens(model, prompt, output, sampling)
