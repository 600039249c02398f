"""Tensor parallelism: tokens and log-probabilities are those of one rank, and with the kernels for
CPUs their bits are the same in any batch."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support.cells.rank_threads import use_threads
from support.cells.ranked_answers import RankedAnswers, generated, prompts
from support.checkpoints.checkpoints import make_checkpoint
from support.checkpoints.fallback_checkpoints import make_fallback_checkpoint
from support.kernels.fused_kernels import needs_kernels
from support.oracles.family_checkpoints import FAMILY_CHECKPOINTS
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

TOLERANCE = 2e-4

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


def assert_equal(one: RankedAnswers, other: RankedAnswers) -> None:
    assert one.tokens == other.tokens
    for logprobs, near in zip(one.logprobs, other.logprobs, strict=True):
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
    alone = generated(folder, given, cpu_backend=backend)
    ranked = generated(folder, given, cpu_backend=backend, tensor_parallel_size=num_ranks)
    assert_equal(ranked, alone)
    # Sums over another number of ranks have other bits.
    assert ranked.kernel_set == f"{alone.kernel_set},tp={num_ranks}:shared-memory-2"


def test_bits_do_not_depend_on_the_batch(make: Make) -> None:
    """Sums over ranks have one order, so a prompt alone, in chunks or beside others is the same."""
    folder, given = make("gemma3"), prompts()
    settings = {"cpu_backend": "fused", "dtype": "bfloat16", "tensor_parallel_size": 2}
    together = generated(folder, given, **settings)
    for index, prompt in enumerate(given[:3]):
        alone = generated(folder, [prompt], 7 + index, **settings)
        assert alone.tokens[0] == together.tokens[index]
        assert alone.logprobs[0] == together.logprobs[index]
    assert generated(folder, given, **settings) == together
