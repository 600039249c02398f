"""Tensor parallelism: tokens and log-probabilities are those of one rank, and with the kernels for
CPUs their bits are the same in any batch."""

import functools
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pagewire_shared.sampling.params import SamplingParams
from support.cells.rank_threads import end_ranks, use_threads
from support.cells.worker_driver import Driver, Running, load
from support.checkpoints.checkpoints import make_checkpoint
from support.checkpoints.fallback_checkpoints import VOCAB, make_fallback_checkpoint
from support.kernels.fused_kernels import needs_kernels
from support.oracles.family_checkpoints import FAMILY_CHECKPOINTS, MAX_POSITIONS
from support.products import WHOLE

pytestmark = needs_kernels

DENSE = ("gemma2", "gemma3", "glm4", "granite", "phi3", "smollm3", "starcoder2", "qwen3-yarn")
"""Caps, windows, norms behind layers, merged and biased matrices, layers without positions."""

EXPERTS = ("qwen2-moe", "gpt-oss", "deepseek-v2", "deepseek-v3")
"""Shared experts with a gate, biases and sinks, latents with queries of both sorts."""

IN_SHORT_RUN = (
    *((name, "fused") for name in ("gemma3", "glm4", "phi3", "gpt-oss", "deepseek-v3")),
    ("starcoder2", "torch"),
)

QWEN = "qwen"
"""A model that is wide enough for four ranks of kernels, which read 16 numbers at once."""

GREEDY = SamplingParams(temperature=0.0, max_tokens=None, logprobs=3)
TOLERANCE = 2e-4
NEAR_TIE = 1e-3

Make = Callable[[str], Path]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    torch.set_num_threads(1)

    @functools.cache
    def made(name: str) -> Path:
        place = tmp_path_factory.mktemp("ranks")
        if name != QWEN:
            model_type, fields = FAMILY_CHECKPOINTS[name]
            # Experts that kernels read in parts, too.
            wider = {"moe_intermediate_size": 64} if "moe_intermediate_size" in fields else {}
            return make_fallback_checkpoint(place / name, model_type, {**fields, **wider})
        return make_checkpoint(place / name, architecture="Qwen3ForCausalLM", hidden=256, layers=2)

    return made


@pytest.fixture(autouse=True)
def _threads(monkeypatch: pytest.MonkeyPatch) -> None:
    use_threads(monkeypatch)


def prompts(lengths: Sequence[int] = (1, 41, 3, 90, 17)) -> list[list[int]]:
    generator = random.Random(3)
    return [[generator.randrange(3, VOCAB) for _ in range(size)] for size in lengths]


def generated(
    folder: Path, num_ranks: int, given: Sequence[Sequence[int]], budget: int = 24, **settings: Any
) -> tuple[list[list[int]], list[list[float]]]:
    """Return the tokens of each prompt, and the log-probability of each token."""
    replica = load(
        folder,
        tensor_parallel_size=num_ranks,
        max_model_len=MAX_POSITIONS,
        max_num_batched_tokens=64,
        kv_cache_memory=1 << 23,
        **settings,
    )
    try:
        sequences = [Running(slot, prompt, GREEDY, 12) for slot, prompt in enumerate(given)]
        results = Driver.of(replica).finish(sequences, budget=budget)
        is_divided = ",tp=" in replica.model_runner.backend.kernel_set
        assert is_divided == (num_ranks > 1)
    finally:
        end_ranks(replica)
    found: list[list[float]] = [[] for _ in given]
    for result in results:
        place = 0
        for slot, count in zip(result.slots, result.counts, strict=True):
            found[slot] += np.asarray(result.logprobs[place : place + count]).tolist()
            place += count
    return [one.output for one in sequences], found


def assert_equal(
    one: tuple[list[list[int]], list[list[float]]], other: tuple[list[list[int]], list[list[float]]]
) -> None:
    for tokens, same, logprobs, near in zip(one[0], other[0], one[1], other[1], strict=True):
        assert tokens == same
        np.testing.assert_allclose(logprobs, near, atol=TOLERANCE)


IN_LONG_RUN = (
    *[("qwen2-moe", "torch", 2), ("gpt-oss", "torch", 2), ("deepseek-v2", "fused", 2)],
    *[("gemma2", "torch", 4), (QWEN, "fused", 4)],
)


def marked(name: str, backend: str, num_ranks: int) -> Any:
    """Return the case, marked as one of the long run or of the whole product."""
    case = (name, backend, num_ranks)
    return pytest.param(*case, marks=[pytest.mark.long] if case in IN_LONG_RUN else WHOLE)


@pytest.mark.parametrize(
    ("name", "backend", "num_ranks"),
    [
        *((name, backend, 2) for name, backend in IN_SHORT_RUN),
        *(
            marked(name, backend, 2)
            for name in DENSE + EXPERTS
            for backend in ("fused", "torch")
            if (name, backend) not in IN_SHORT_RUN
        ),
        *(
            marked(name, "torch", 4)
            for name in DENSE + EXPERTS
            if name != "deepseek-v3"  # of six heads
        ),
        marked(QWEN, "fused", 4),
    ],
)
def test_tokens_are_those_of_one_rank(make: Make, name: str, backend: str, num_ranks: int) -> None:
    folder, given = make(name), prompts()
    alone = generated(folder, 1, given, cpu_backend=backend)
    assert_equal(generated(folder, num_ranks, given, cpu_backend=backend), alone)


def test_bits_do_not_depend_on_the_batch(make: Make) -> None:
    """Sums over ranks have one order, so a prompt alone, in chunks or beside others is the same."""
    folder, given = make("gemma3"), prompts()
    settings = {"cpu_backend": "fused", "dtype": "bfloat16"}
    together = generated(folder, 2, given, **settings)
    for index, prompt in enumerate(given[:3]):
        alone = generated(folder, 2, [prompt], 7 + index, **settings)
        assert alone[0][0] == together[0][index]
        assert alone[1][0] == together[1][index]
    assert generated(folder, 2, given, **settings) == together
