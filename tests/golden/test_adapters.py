"""Adapters equal the same model with their products merged into its weights, in every family and on
every backend, for rows of other adapters and of the model alone in the same steps."""

import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from pagewire_shared.sampling.params import SamplingParams
from pagewire_worker.loading.loader import Replica
from support.adapters.model_adapters import MadeAdapter, make_adapter, merge
from support.cells.worker_driver import Driver, Running, load
from support.checkpoints.fallback_checkpoints import VOCAB, make_fallback_checkpoint
from support.kernels.fused_kernels import needs_kernels
from support.oracles.family_checkpoints import SHAPE, make_family_checkpoint
from support.oracles.mxfp4_checkpoints import make_mxfp4_checkpoints
from support.products import WHOLE

TOLERANCE = 1e-3
SAMPLING = SamplingParams(temperature=0.0, max_tokens=None, logprobs=4)
SETTINGS: dict[str, Any] = {"enable_lora": True, "max_loras": 3, "max_lora_rank": 24}
WAYS: dict[str, dict[str, Any]] = {
    "fused": {"cpu_backend": "fused"},
    "torch": {"cpu_backend": "torch"},
    "triton": {"attention_backend": "triton"},
}


@dataclass(frozen=True)
class Case:
    """A model, two adapters of different ranks, and what the merged models answer."""

    model: Path
    adapters: tuple[MadeAdapter, ...]
    merged: tuple[Path, ...]


Prepare = Callable[[str], Case]


@pytest.fixture(scope="module")
def prepare(tmp_path_factory: pytest.TempPathFactory) -> Prepare:
    torch.set_num_threads(1)

    @functools.cache
    def make(name: str) -> Case:
        place = tmp_path_factory.mktemp("adapters")
        model = (
            make_fallback_checkpoint(place / "llama", "llama", SHAPE)
            if name == "llama"
            else make_family_checkpoint(place, name)
        )
        routed = name in ROUTED
        adapters = (
            make_adapter(place / "a", model, rank=3, seed=1, routed=routed),
            # Larger values make scores of gemma2 whose exponential is infinite: numpy warns.
            make_adapter(
                *(place / "b", model),
                rank=20,
                seed=2,
                scale=0.1,
                use_rslora=True,
                routed=routed,
                outer=True,
            ),
        )
        merged = tuple(
            merge(one, model, place / f"merged-{number}") for number, one in enumerate(adapters)
        )
        return Case(model, adapters, merged)

    return make


def prompts(count: int, longest: int) -> list[list[int]]:
    generator = random.Random(5)
    sizes = [generator.randint(3, longest) for _ in range(count)]
    return [[generator.randrange(3, VOCAB) for _ in range(size)] for size in sizes]


def answers(
    replica: Replica,
    asked: Sequence[tuple[Sequence[int], int | None]],
    num_tokens: int,
    budget: int,
) -> list[tuple[list[int], list[float]]]:
    """Return tokens and log-probabilities of prompts with adapter slots, run together."""
    driver = Driver.of(replica)
    running = [
        Running(slot, prompt, SAMPLING, num_tokens, adapter_slot=adapter)
        for slot, (prompt, adapter) in enumerate(asked)
    ]
    driver.finish(running, budget=budget)
    driver.run_well([])  # frees the slots
    return [(one.output, logprobs(one)) for one in running]


def logprobs(sequence: Running) -> list[float]:
    """Return the log-probability of each of its tokens."""
    found = []
    for result in sequence.results:
        ends = [sum(int(n) for n in result.counts[: row + 1]) for row in range(len(result.counts))]
        row = [int(slot) for slot in result.slots].index(sequence.slot)
        if result.counts[row]:
            found.append(float(result.logprobs[ends[row] - 1]))
    return found


def loaded(case: Case, way: str, **settings: Any) -> Replica:
    replica = load(case.model, model_impl="native", **WAYS[way], **SETTINGS, **settings)
    for slot, adapter in enumerate(case.adapters):
        adapter.fill(replica.model_runner, slot + 1)
    return replica


DENSE = ("gemma2", "phi3", "glm4", "starcoder2", "granite", "smollm3", "olmo2", "qwen2-mixed")
SHARED = ("qwen2-moe",)
"""Attention and the shared expert have adapters, the experts of the router have none."""

ROUTED = ("mixtral", "deepseek-v3")
"""The experts of the router have adapters, too."""

ON_TRITON = ("llama", "gemma2", "phi3", "glm4", "qwen2-moe")
"""Plain, with capped scores, with merged matrices, with reordered heads, with a shared expert."""


IN_LONG_RUN = ("gemma2", "glm4")
"""Of ON_TRITON; the others are in the whole product."""


def cases() -> list[Any]:
    found = []
    for name in ("llama", *DENSE, *SHARED, *ROUTED):
        for way in WAYS:
            if way == "triton" and name not in ON_TRITON:
                continue
            marks: list[Any] = [needs_kernels] if way == "fused" else []
            if way == "triton":
                # The interpreter takes long; captured decodes are compared in the short run.
                marks += [pytest.mark.long] if name in IN_LONG_RUN else WHOLE
            found.append(pytest.param(name, way, marks=marks))
    return found


@pytest.mark.parametrize(("name", "way"), cases())
def test_merged_weights(prepare: Prepare, name: str, way: str) -> None:
    case = prepare(name)
    count, longest, num_tokens = (3, 7, 2) if way == "triton" else (6, 30, 8)
    asked = prompts(count, longest)
    slots = [(None, 1, 2)[number % 3] for number in range(count)]
    found = answers(loaded(case, way), list(zip(asked, slots, strict=True)), num_tokens, budget=16)
    for slot, model in zip((None, 1, 2), (case.model, *case.merged), strict=True):
        plain = load(model, model_impl="native", cpu_backend="torch")
        own = [number for number, one in enumerate(slots) if one == slot]
        expected = answers(plain, [(asked[number], None) for number in own], num_tokens, 64)
        for number, (tokens, logs) in zip(own, expected, strict=True):
            assert found[number][0] == tokens
            torch.testing.assert_close(
                torch.tensor(found[number][1]), torch.tensor(logs), atol=TOLERANCE, rtol=TOLERANCE
            )


def test_an_adapter_changes_the_answers(prepare: Prepare) -> None:
    """Without this the tests above would hold for adapters that do nothing."""
    case = prepare("llama")
    asked = prompts(3, 20)
    replica = loaded(case, "torch")
    all_answers = [
        [tokens for tokens, _ in answers(replica, [(one, slot) for one in asked], 8, 64)]
        for slot in (None, 1, 2)
    ]
    assert all_answers[0] != all_answers[1] != all_answers[2] != all_answers[0]


STORED = Path(__file__).parents[1] / "support" / "quantized"


@needs_kernels
@pytest.mark.parametrize(
    "name", ["awq", "gptq-4-order", "w4a16-zeros", "nf4", "fp8-block", "mxfp4"]
)
def test_codes_of_a_checkpoint(name: str, tmp_path: Path) -> None:
    """The kernels keep the codes, torch has their values; both add the same adapter.

    With mxfp4, experts that a router chooses have codes, biases, and gates with a limit.
    """
    model = make_mxfp4_checkpoints(tmp_path)[0] if name == "mxfp4" else STORED / name
    adapter = make_adapter(tmp_path / "adapter", model, rank=5, routed=True, outer=True)
    asked = [
        ([(7 * place + row) % 128 for place in range(20)], row % 2 or None) for row in range(4)
    ]
    found = []
    for way in ("fused", "torch"):
        replica = load(model, **WAYS[way], **SETTINGS)
        adapter.fill(replica.model_runner, 1)
        found.append(answers(replica, asked, 6, budget=24))
    for (tokens, logs), (expected, expected_logs) in zip(*found, strict=True):
        assert tokens == expected
        torch.testing.assert_close(
            torch.tensor(logs), torch.tensor(expected_logs), atol=TOLERANCE, rtol=TOLERANCE
        )


@needs_kernels
@pytest.mark.parametrize(
    ("name", "quantization"), [("llama", "int8"), ("llama", "int4"), ("mixtral", "int8")]
)
def test_weights_that_are_quantized_while_they_are_read(
    prepare: Prepare, name: str, quantization: str
) -> None:
    """The adapter is added whole: answers are nearer to those over plain weights than without."""
    case = prepare(name)
    asked = [(prompt, 1) for prompt in prompts(3, 20)]
    plain = answers(loaded(case, "fused"), asked, 1, 64)
    coarse = answers(loaded(case, "fused", quantization=quantization), asked, 1, 64)
    bare = answers(loaded(case, "fused"), [(prompt, None) for prompt, _ in asked], 1, 64)

    def distance(others: list[tuple[list[int], list[float]]]) -> float:
        pairs = zip(plain, others, strict=True)
        return max(abs(one[1][0] - other[1][0]) for one, other in pairs)

    assert distance(coarse) < distance(bare)
