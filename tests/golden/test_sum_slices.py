"""Sums in slices: one, two and four ranks give the same bits, and have the same names of kernels.

The whole product has 500 random batches: `pytest tests/golden/test_sum_slices.py -m whole`.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pagewire_shared.errors import StartupError
from pagewire_worker.cpu_kernels.library import instruction_sets
from support.cells import ranked_answers
from support.cells.exact_cells import SOLO, ExactCell
from support.cells.rank_threads import end_ranks, use_threads
from support.cells.ranked_answers import GREEDY, RankedAnswers, generated, prompts
from support.cells.worker_driver import Driver, Running, load
from support.checkpoints.checkpoints import make_checkpoint
from support.checkpoints.fallback_checkpoints import make_fallback_checkpoint
from support.checkpoints.gguf_files import write_blocks
from support.checkpoints.packed_checkpoints import write_w4a16
from support.kernels.fused_kernels import needs_kernels
from support.oracles.exact_requests import check_batches, draw_requests
from support.oracles.family_checkpoints import FAMILY_CHECKPOINTS
from support.products import WHOLE, cases_of

pytestmark = needs_kernels

DENSE = ("gemma2", "gemma3", "glm4", "granite", "phi3", "smollm3", "starcoder2", "qwen3-yarn")
EXPERTS = ("qwen2-moe", "qwen3-moe", "gpt-oss", "deepseek-v2", "deepseek-v3")
QWEN, PACKED, BLOCKS = "qwen", "packed", "blocks"
"""The second one has codes of 4 bits in groups of 32 inputs, the third blocks of GGUF."""

DIVIDED: dict[str, Any] = {
    "intermediate_size": 192,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 128,
}
"""Inner values in four slices of a multiple of 16."""

SHORT = ("gemma3", "starcoder2", "gpt-oss", "deepseek-v3", PACKED)
"""Windows, biases, experts with sinks, latents behind a layer without experts, codes."""

NUM_BLOCKS = 32
"""That sequences use whose cache is compared."""

STORED = Path(__file__).parents[1] / "support" / "quantized"
STORED_FORMATS = (
    *("awq", "fp4", "fp8-block", "fp8-channel", "fp8-tensor", "gptq-4", "gptq-8-v2"),
    *("int8", "nf4", "w4a16", "w4a16-zeros", "w8a16", "w8a8"),
)

Make = Callable[[str], Path]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    torch.set_num_threads(1)

    @functools.cache
    def made(name: str) -> Path:
        place = tmp_path_factory.mktemp("slices")
        if name in (QWEN, PACKED, BLOCKS):
            shape = {"hidden": 128, "heads": 8, "kv_heads": 2, "intermediate": 384, "layers": 3}
            architecture = "Qwen3ForCausalLM"
            plain = make_checkpoint(place / "plain", architecture=architecture, **shape)
            if name == BLOCKS:
                return write_blocks(place / "blocks", plain, "Q4_0")
            return plain if name == QWEN else write_w4a16(place / "packed", plain)
        model_type, fields = FAMILY_CHECKPOINTS[name]
        wider = {key: value for key, value in DIVIDED.items() if key in fields}
        if name == "deepseek-v3":
            wider |= {"num_attention_heads": 8, "num_key_value_heads": 8}
        return make_fallback_checkpoint(place / name, model_type, {**fields, **wider})

    return made


@pytest.fixture(autouse=True)
def _threads(monkeypatch: pytest.MonkeyPatch) -> None:
    use_threads(monkeypatch)


def answers(folder: Path, num_ranks: int, **settings: Any) -> RankedAnswers:
    """Return the answers of so many ranks with four slices."""
    settings = {"cpu_backend": "fused", "sum_slices": 4, **settings}
    return generated(folder, prompts(), tensor_parallel_size=num_ranks, **settings)


@pytest.mark.parametrize("name", cases_of((*DENSE, *EXPERTS, QWEN, PACKED, BLOCKS), SHORT))
def test_any_number_of_ranks_has_the_same_bits(make: Make, name: str) -> None:
    alone = answers(make(name), 1)
    assert ",sums=4" in alone.kernel_set
    for num_ranks in (2, 4):
        assert answers(make(name), num_ranks) == alone, num_ranks


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        (QWEN, {"quantization": "int8"}),
        ("qwen3-moe", {"quantization": "int4", "kv_cache_dtype": "int8"}),
        *(
            pytest.param(name, {"quantization": kind}, marks=WHOLE)
            for name in (QWEN, "qwen2-moe", "deepseek-v2", "gpt-oss")
            for kind in ("int8", "int4", "int8-output")
        ),
        *(pytest.param(name, {"dtype": "bfloat16"}, marks=WHOLE) for name in (*DENSE, *EXPERTS)),
        (PACKED, {"dtype": "bfloat16", "pipeline_parallel_size": 2}),
    ],
)
def test_settings_that_change_products(make: Make, name: str, settings: dict[str, Any]) -> None:
    """Scales of inputs are those of slices, whichever rank has them."""
    alone = answers(make(name), 1, **{**settings, "pipeline_parallel_size": 1})
    for num_ranks in (2, 4):
        assert answers(make(name), num_ranks, **settings) == alone, num_ranks


@pytest.mark.parametrize("name", cases_of(STORED_FORMATS, ("awq", "fp8-channel")))
def test_stored_formats(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Groups of scales are whole in two slices; a scale of a whole row is that of each slice."""
    monkeypatch.setattr(ranked_answers, "MAX_POSITIONS", 128)
    given = [[5], [7, 9] * 20, [11, 3, 8]]
    settings = {"cpu_backend": "fused", "sum_slices": 2}
    alone = generated(STORED / name, given, **settings)
    assert generated(STORED / name, given, tensor_parallel_size=2, **settings) == alone


def cached(folder: Path, num_ranks: int) -> list[torch.Tensor]:
    """Return the blocks of rank 0 for each layer, uint8 [parts, blocks, heads, bytes]."""
    replica = load(
        folder,
        cpu_backend="fused",
        kv_cache_memory=1 << 22,
        max_num_batched_tokens=64,
        sum_slices=4,
        tensor_parallel_size=num_ranks,
    )
    sequences = [Running(slot, prompt, GREEDY, 12) for slot, prompt in enumerate(prompts())]
    driver = Driver(replica.model_runner, num_blocks=NUM_BLOCKS, block_size=16)
    driver.finish(sequences, budget=24)
    end_ranks(replica)
    cache = replica.model_runner.backend.kv_cache
    heads = cache.shape.num_kv_heads
    return [
        torch.stack([one.view(torch.uint8).view(len(one), heads, -1) for one in layer.parts])[
            :, :NUM_BLOCKS
        ]
        for layer in cache.layers
    ]


def test_keys_and_values_are_those_of_one_rank(make: Make) -> None:
    alone, ranked = cached(make(QWEN), 1), cached(make(QWEN), 2)
    for whole, part in zip(alone, ranked, strict=True):
        assert part.any()
        assert torch.equal(whole[:, :, :1], part)


def test_every_instruction_set(make: Make) -> None:
    for isa in instruction_sets():
        settings = {"cpu_isa": isa, "dtype": "bfloat16"}
        alone = answers(make(QWEN), 1, **settings)
        assert answers(make(QWEN), 4, **settings) == alone, isa


def test_slices_have_bits_of_their_own(make: Make) -> None:
    """The answers are near those without slices, under another name."""
    sliced, whole = answers(make(QWEN), 1), answers(make(QWEN), 1, sum_slices=1)
    assert sliced.tokens == whole.tokens
    assert sliced.logprobs != whole.logprobs
    for own, other in zip(sliced.logprobs, whole.logprobs, strict=True):
        np.testing.assert_allclose(own, other, atol=2e-4)
    assert sliced.kernel_set == f"{whole.kernel_set},sums=4"


def test_a_group_of_a_scale_is_not_cut(make: Make) -> None:
    message = (
        "--sum-slices: tensor model.layers.0.self_attn.o_proj.weight cannot be sliced: its groups"
    )
    with pytest.raises(StartupError, match=f"^{message} of 32 inputs would be cut$"):
        answers(make(PACKED), 1, sum_slices=8, dtype="bfloat16")


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("num_ranks", "num_batches"),
    [(2, 3), pytest.param(4, 20, marks=pytest.mark.long), pytest.param(2, 500, marks=WHOLE)],
)
def test_random_batches_of_ranks_have_the_bits_of_one(
    make: Make, num_ranks: int, num_batches: int
) -> None:
    """Chunks, prefix hits, preemptions, deaths and moved blocks; one rank computes each request
    alone."""
    settings = {"device": "cpu", "cpu_backend": "fused", "sum_slices": 4}
    one = ExactCell(make(QWEN), num_threads=1, **settings)
    requests = draw_requests(num_ranks)
    alone = [one.run([request], SOLO)[0] for request in requests]
    ranked = ExactCell(make(QWEN), num_threads=2, tensor_parallel_size=num_ranks, **settings)
    assert ranked.replica.info.numerics_fingerprint == one.replica.info.numerics_fingerprint
    check_batches((ranked, requests, alone), num_batches, seed=2)
    print(f"{ranked.num_preemptions} preemptions, {ranked.num_cached_tokens} cached tokens")
    end_ranks(ranked.replica)
