"""The same bits whatever happens: random batches against each request alone, in bfloat16.

Tokens and log-probabilities are compared as they are, without any tolerance.
"""

import functools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pagewire_shared.sampling import SamplingParams
from pagewire_worker.fused import library
from pagewire_worker.fused.library import instruction_sets
from support.checkpoints import make_checkpoint
from support.exact_cells import SOLO, Answer, ExactCell, Request, draw_weather
from support.fused_kernels import needs_kernels

pytestmark = needs_kernels

VOCAB = 512
NUM_REQUESTS = 40
"""Per architecture, each computed alone once."""

CHECKPOINTS: dict[str, dict[str, Any]] = {
    "llama": {"architecture": "LlamaForCausalLM", "rope_scaling": "llama3"},
    "qwen2": {"architecture": "Qwen2ForCausalLM", "tied": True, "heads": 6, "head_dim": 16},
    "qwen3": {"architecture": "Qwen3ForCausalLM", "head_dim": 32},
    "mistral": {
        "architecture": "LlamaForCausalLM",
        "config": {"architectures": ["MistralForCausalLM"], "sliding_window": 40},
    },
}

NUM_THREADS = 1
"""More would wait for each other on so small a model; that their number does not matter is shown
kernel by kernel."""

Case = tuple[ExactCell, list[Request], list[Answer]]


def draw_requests(seed: int) -> list[Request]:
    """Return requests of which many begin alike."""
    generator = random.Random(seed)
    stems = [[generator.randrange(3, VOCAB) for _ in range(200)] for _ in range(3)]
    requests = []
    for _ in range(NUM_REQUESTS):
        stem = generator.choice(stems)[: generator.choice([0, 0, 15, 16, 33, 100])]
        own = [generator.randrange(3, VOCAB) for _ in range(generator.choice([1, 2, 16, 30]))]
        sampling = SamplingParams(
            temperature=generator.choice([0.0, 0.0, 0.8, 1.2]),
            top_p=generator.choice([1.0, 0.9]),
            top_k=generator.choice([0, 20]),
            repetition_penalty=generator.choice([1.0, 1.0, 1.1]),
            seed=generator.getrandbits(64),
            logprobs=generator.choice([None, 0, 3]),
            max_tokens=generator.choice([1, 3, 16, 40, 64]),
            ignore_eos=True,
        )
        requests.append(Request((*stem, *own), sampling))
    return requests


@pytest.fixture(scope="module")
def prepare(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    """Make a cell and its solo answers the first time an architecture is asked for."""

    @functools.cache
    def make(name: str) -> Case:
        folder = tmp_path_factory.mktemp("exact") / name
        cell = ExactCell(
            make_checkpoint(folder, vocab=VOCAB, layers=3, **CHECKPOINTS[name]),
            num_threads=NUM_THREADS,
        )
        requests = draw_requests(len(name))
        alone = [cell.run([request], SOLO)[0] for request in requests]
        return cell, requests, alone

    return make


def check_batches(case: Case, num_batches: int, seed: int) -> None:
    """Compare so many random batches with the requests alone."""
    cell, requests, alone = case
    generator = random.Random(seed)
    longest = max(len(one.prompt) + (one.sampling.max_tokens or 0) for one in requests)
    for number in range(num_batches):
        chosen = generator.choices(range(NUM_REQUESTS), k=generator.choice([2, 4, 8, 16]))
        weather = draw_weather(generator, longest)
        answers = cell.run([requests[index] for index in chosen], weather)
        for index, answer in zip(chosen, answers, strict=True):
            assert answer == alone[index], (number, index, weather)


@pytest.mark.parametrize("name", sorted(CHECKPOINTS))
def test_batches_equal_requests_alone(prepare: Callable[[str], Case], name: str) -> None:
    case = prepare(name)
    check_batches(case, 25, seed=1)
    cell = case[0]
    assert cell.num_preemptions > 0
    assert cell.num_deaths > 0
    assert cell.num_cached_tokens > 0


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize("name", sorted(CHECKPOINTS))
def test_many_batches_equal_requests_alone(
    prepare: Callable[[str], Case], name: str, seed: int
) -> None:
    check_batches(prepare(name), 125, seed=seed)


def test_a_difference_would_be_found(
    prepare: Callable[[str], Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same requests on another instruction set differ in last bits."""
    _, requests, alone = prepare("llama")
    sets = instruction_sets()
    if len(sets) == 1:
        pytest.skip("there is only one instruction set here")
    name, number = list(sets.items())[-1]
    monkeypatch.setattr(library, "instruction_sets", lambda: {name: number})
    make_checkpoint(tmp_path, vocab=VOCAB, layers=3, **CHECKPOINTS["llama"])
    cell = ExactCell(tmp_path, num_threads=NUM_THREADS)
    others = [cell.run([request], SOLO)[0] for request in requests]
    assert others != alone
    logprobs = [[one and one.logprob for one in answer.logprobs] for answer in others]
    assert all(one is None or one == one for answer in logprobs for one in answer)  # no NaN
