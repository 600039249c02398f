"""Adapters of models that ranks compute: tokens and log-probabilities are those of one process, for
rows of several adapters and of the model alone in the same steps."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pagewire_worker.parallel import micro_batches
from support.adapters.model_adapters import MadeAdapter, make_adapter
from support.cells.rank_threads import use_threads
from support.cells.ranked_answers import generated, prompts
from support.checkpoints.checkpoints import make_checkpoint
from support.checkpoints.fallback_checkpoints import make_fallback_checkpoint
from support.kernels.fused_kernels import needs_kernels
from support.oracles.family_checkpoints import FAMILY_CHECKPOINTS
from support.products import WHOLE

pytestmark = needs_kernels

TOLERANCE = 2e-4

QWEN = "qwen"
"""A model with one matrix for embedding and logits, wide enough for four ranks of kernels."""

IN_SHORT_RUN = (
    *((QWEN, "fused", 2, 1), ("mixtral", "torch", 2, 1)),
    *(("gemma3", "fused", 1, 2), ("deepseek-v3", "fused", 2, 1)),
)
"""Divided vocabularies, divided experts, an embedding and logits in two stages, and matrices of
latent attention, which take no adapters, beside experts, which do."""

IN_LONG_RUN = ((QWEN, "fused", 4, 1), ("gpt-oss", "fused", 2, 2), ("phi3", "torch", 2, 2))


@dataclass(frozen=True)
class Case:
    """A model and two adapters of different ranks."""

    model: Path
    adapters: tuple[MadeAdapter, ...]


Make = Callable[[str], Case]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    torch.set_num_threads(1)

    @functools.cache
    def made(name: str) -> Case:
        place = tmp_path_factory.mktemp("adapted")
        if name == QWEN:
            model = make_checkpoint(
                place / "m", architecture="Qwen3ForCausalLM", hidden=256, layers=2, tied=True
            )
        else:
            model_type, fields = FAMILY_CHECKPOINTS[name]
            # Experts that kernels read in parts, too.
            wider = {"moe_intermediate_size": 64} if "moe_intermediate_size" in fields else {}
            model = make_fallback_checkpoint(place / "m", model_type, {**fields, **wider})
        adapters = (
            make_adapter(place / "a", model, rank=3, seed=1, routed=True, scale=0.2),
            make_adapter(place / "b", model, rank=20, seed=2, routed=True, outer=True, scale=0.1),
        )
        return Case(model, adapters)

    return made


@pytest.fixture(autouse=True)
def _threads(monkeypatch: pytest.MonkeyPatch) -> None:
    use_threads(monkeypatch)
    # Small steps have several micro-batches, too.
    monkeypatch.setattr(micro_batches, "LEAST_TOKENS", 5)


def cases() -> list[Any]:
    """Return name, backend, ranks of each stage, and stages."""
    found = [
        (name, backend, *sizes)
        for name in (QWEN, "gemma3", "glm4", "phi3", "mixtral", "qwen2-moe", "gpt-oss")
        for backend in ("fused", "torch")
        for sizes in ((2, 1), (1, 2), (2, 2))
    ]
    others = [case for case in found if case not in IN_SHORT_RUN + IN_LONG_RUN]
    return [
        *(pytest.param(*case) for case in IN_SHORT_RUN),
        *(pytest.param(*case, marks=pytest.mark.long) for case in IN_LONG_RUN),
        *(pytest.param(*case, marks=WHOLE) for case in others),
    ]


@pytest.mark.parametrize(("name", "backend", "num_ranks", "num_stages"), cases())
def test_tokens_are_those_of_one_process(
    make: Make, name: str, backend: str, num_ranks: int, num_stages: int
) -> None:
    case, given = make(name), prompts()
    settings: dict[str, Any] = {"cpu_backend": backend, "adapters": case.adapters}
    alone = generated(case.model, given, **settings)
    ranked = generated(
        case.model,
        given,
        **settings,
        tensor_parallel_size=num_ranks,
        pipeline_parallel_size=num_stages,
    )
    assert ranked.tokens == alone.tokens
    for logprobs, near in zip(ranked.logprobs, alone.logprobs, strict=True):
        np.testing.assert_allclose(logprobs, near, atol=TOLERANCE)
    if num_ranks == 1:
        assert ranked == alone


def test_adapters_change_the_answers(make: Make) -> None:
    """Without this the test above would hold for adapters that do nothing."""
    case, given = make(QWEN), prompts()
    bare = generated(case.model, given, tensor_parallel_size=2)
    adapted = generated(case.model, given, adapters=case.adapters, tensor_parallel_size=2)
    for index, (one, other) in enumerate(zip(bare.tokens, adapted.tokens, strict=True)):
        assert (one == other) == (index % 3 == 0)


def test_bits_do_not_depend_on_the_batch(make: Make) -> None:
    case, given = make(QWEN), prompts()
    settings: dict[str, Any] = {
        **{"cpu_backend": "fused", "dtype": "bfloat16", "adapters": case.adapters},
        **{"tensor_parallel_size": 2, "pipeline_parallel_size": 2},
    }
    together = generated(case.model, given, **settings)
    for index, slot in ((1, 0), (2, 1), (3, None)):
        alone = generated(case.model, [given[index]], 7, first_slot=slot, **settings)
        assert alone.tokens[0] == together.tokens[index]
        assert alone.logprobs[0] == together.logprobs[index]
