"""Families of the native decoder: tokens and log-probabilities equal transformers' own in float32,
with the kernels for CPUs, with torch, and with the kernels for CUDA in their interpreter, where it
is checked as well that kernels stay within their tensors."""

import functools
import random
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from pagewire_shared.sampling.pooling import PoolingParams
from pagewire_worker.families.registry import MODULES, NESTED
from support.cells.worker_driver import GREEDY, Driver, Running, load
from support.checkpoints.fallback_checkpoints import VOCAB
from support.kernels.fused_kernels import needs_kernels
from support.oracles.family_checkpoints import (
    FAMILY_CHECKPOINTS,
    MAX_POSITIONS,
    make_family_checkpoint,
)
from support.oracles.nested_checkpoints import NESTED_CHECKPOINTS, make_nested_checkpoint
from support.poison import poisoned

TOLERANCE = 1e-4
NEAR_TIE = 1e-4


@dataclass(frozen=True)
class Way:
    """A way to compute a model, and prompts that it computes within the time of a test."""

    settings: dict[str, Any]
    kernel_set: str
    lengths: tuple[int, ...]
    num_tokens: int
    budget: int


# What warms up a replica is smaller with these.
FEW_AT_ONCE = {"max_num_seqs": 8, "max_num_batched_tokens": 10}

WAYS = {
    "fused": Way({"cpu_backend": "fused"}, "fused", (1, 41, 3, 90, 17, 64, 2, 33), 24, 24),
    "torch": Way({"cpu_backend": "torch"}, "torch", (1, 41, 3, 90, 17, 64, 2, 33), 24, 24),
    "triton": Way({"attention_backend": "triton", **FEW_AT_ONCE}, "triton", (3, 15), 3, 10),
}

Prepare = Callable[[str], tuple[Path, Any]]


@pytest.fixture(scope="module")
def prepare(tmp_path_factory: pytest.TempPathFactory) -> Prepare:
    """Make a checkpoint and transformers' model the first time its name is asked for."""
    torch.set_num_threads(1)

    @functools.cache
    def make(name: str) -> tuple[Path, Any]:
        place = tmp_path_factory.mktemp("families")
        is_nested = name in NESTED_CHECKPOINTS
        make_checkpoint = make_nested_checkpoint if is_nested else make_family_checkpoint
        library: Any = AutoModelForImageTextToText if is_nested else AutoModelForCausalLM
        folder = make_checkpoint(place, name)
        plain = library.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
        return folder, plain.eval()

    return make


def test_every_family_has_a_checkpoint() -> None:
    shown = {MODULE_OF.get(model_type, model_type) for model_type, _ in FAMILY_CHECKPOINTS.values()}
    names = {module.__name__.rpartition(".")[2] for module in MODULES}
    # The tests of steps and of greedy tokens have these.
    assert names - shown <= {"llama", "mistral", "qwen"}
    nested = {model_type for model_type, *_ in NESTED_CHECKPOINTS.values()}
    assert {MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES[one] for one in nested} == set(NESTED)


MODULE_OF = {
    **{"gemma2": "gemma", "gemma3_text": "gemma", "glm4": "glm"},
    **{"ministral": "mistral", "ministral3": "mistral", "glm4_moe": "glm_moe"},
    **{"qwen2_moe": "qwen_moe", "qwen3_moe": "qwen_moe"},
    **{"deepseek_v2": "deepseek", "deepseek_v3": "deepseek"},
}


def cases() -> list[Any]:
    """Return pairs of checkpoint and way; the interpreter takes long."""
    found = []
    for name in sorted([*FAMILY_CHECKPOINTS, *NESTED_CHECKPOINTS]):
        found.append(pytest.param(name, "fused", marks=needs_kernels))
        found.append(pytest.param(name, "torch"))
        if name == "mixtral":
            continue  # mixtral-window has the same parts, and a window
        marks: list[Any] = [] if name in INTERPRETED_IN_SHORT_RUN else [pytest.mark.long]
        if name not in INTERPRETED_IN_SHORT_RUN + INTERPRETED_IN_LONG_RUN:
            marks.append(pytest.mark.whole)
        found.append(pytest.param(name, "triton", marks=marks))
    return found


INTERPRETED_IN_SHORT_RUN = ("gemma2", "glm4", "glm4-moe", "olmo2", "smollm3", "starcoder2")
"""Caps, windows, orders of heads, experts, wide norms, layers without positions, layer norms."""

INTERPRETED_IN_LONG_RUN = ("deepseek-v3", "gpt-oss", "phi3-longrope", "qwen2.5-vl")
"""Latents, sinks, rotary scalings, images and experts of other kinds."""


@pytest.mark.parametrize(("name", "way"), cases())
@torch.inference_mode()
def test_tokens_and_log_probabilities(prepare: Prepare, name: str, way: str) -> None:
    """Prompts longer than a step's budget, beside sequences that decode."""
    (folder, plain), how = prepare(name), WAYS[way]
    generator = random.Random(3)
    prompts = [[generator.randrange(3, VOCAB) for _ in range(size)] for size in how.lengths]
    with poisoned() if way == "triton" else nullcontext():
        replica = load(folder, max_model_len=MAX_POSITIONS, model_impl="native", **how.settings)
        assert replica.model_runner.backend.kernel_set.startswith(how.kernel_set)
        driver = Driver.of(replica)
        outputs = driver.generate(prompts, max_tokens=how.num_tokens, budget=how.budget)
        found = logits_of(driver, prompts[1], how.budget)
        embedded = Running(0, prompts[1], GREEDY, 1, pooling=PoolingParams(pooling="mean"))
        if has_experts(name):
            driver.finish([embedded], budget=how.budget)
    assert len({tuple(output) for output in outputs}) > len(prompts) // 2
    for prompt, output in zip(prompts, outputs, strict=True):
        logits = plain(torch.tensor([[*prompt, *output]]), use_cache=False).logits[0]
        assert_greedy(logits[len(prompt) - 1 : -1], output)
    ids = torch.tensor([prompts[1]])
    expected = plain(ids, use_cache=False).logits[0, -1:]
    torch.testing.assert_close(
        found.log_softmax(-1), expected.log_softmax(-1), atol=TOLERANCE, rtol=1e-4
    )
    if embedded.vector is not None:
        states = plain.base_model(ids, use_cache=False).last_hidden_state[0].double()
        wanted = functional.normalize(states.mean(0), dim=0)
        torch.testing.assert_close(
            torch.tensor(embedded.vector).double(), wanted, atol=TOLERANCE, rtol=0
        )


@needs_kernels
@torch.inference_mode()
def test_longrope_beyond_its_first_context(prepare: Prepare) -> None:
    """A longer context takes the long factors for all positions, and is another numerics."""
    folder, plain = prepare("phi3-longrope")
    settings = {"model_impl": "native", "cpu_backend": "fused", "kv_cache_memory": 2**24}
    replica = load(folder, max_model_len=2 * MAX_POSITIONS, **settings)
    generator = random.Random(3)
    prompt = [generator.randrange(3, VOCAB) for _ in range(MAX_POSITIONS + 9)]
    found = logits_of(Driver.of(replica), prompt, 96)
    expected = plain(torch.tensor([prompt]), use_cache=False).logits[0, -1:]
    torch.testing.assert_close(
        found.log_softmax(-1), expected.log_softmax(-1), atol=TOLERANCE, rtol=1e-4
    )
    within = load(folder, max_model_len=MAX_POSITIONS, **settings)
    assert within.info.numerics_fingerprint != replica.info.numerics_fingerprint


def has_experts(name: str) -> bool:
    """Return whether a checkpoint has experts: then its embeddings are compared, too."""
    return "num_experts_per_tok" in FAMILY_CHECKPOINTS.get(name, ("", {}))[1]


def assert_greedy(logits: Tensor, output: list[int]) -> None:
    """Every token must be the best one, or as good as it."""
    given = logits.gather(1, torch.tensor(output)[:, None])[:, 0]
    assert (logits.max(-1).values - given).max() < NEAR_TIE
    assert (logits.argmax(-1) == torch.tensor(output)).float().mean() > 0.9


def logits_of(driver: Driver, prompt: list[int], budget: int) -> Tensor:
    """Return the logits behind a prompt, [1, vocab]."""
    backend: Any = driver.model_runner.backend
    states: list[Tensor] = []
    forward = backend.forward

    def recorded(batch: Any) -> Tensor:
        states.append(forward(batch).clone())
        return states[-1]

    backend.forward = recorded
    driver.generate([prompt], max_tokens=1, budget=budget)
    backend.forward = forward
    return backend.logits(torch.cat(states)[-1:])
