"""Expert parallelism: ranks with whole experts answer as ranks with parts of every expert, and as
one rank; with sums in slices, the bits are the same.

The whole product: `pytest tests/golden/test_expert_parallel.py -m whole`.
"""

import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from pagewire_worker.backend.expert_counts import CountsExperts
from pagewire_worker.cpu_kernels.library import instruction_sets
from pagewire_worker.loading import ranks
from pagewire_worker.parallel.group_memory import GroupMemory
from support.cells.exact_cells import SOLO, ExactCell
from support.cells.rank_threads import end_ranks, use_threads
from support.cells.ranked_answers import GREEDY, RankedAnswers, generated, prompts
from support.cells.worker_driver import Driver, Running, load
from support.checkpoints.fallback_checkpoints import make_fallback_checkpoint
from support.checkpoints.gguf_files import write_blocks
from support.checkpoints.packed_checkpoints import write_w4a16
from support.kernels.fused_kernels import needs_kernels
from support.oracles.exact_requests import check_batches, draw_requests
from support.oracles.family_checkpoints import FAMILY_CHECKPOINTS
from support.oracles.mxfp4_checkpoints import make_mxfp4_checkpoints
from support.products import WHOLE, cases_of

pytestmark = needs_kernels

NAMES = ("mixtral", "qwen2-moe", "qwen3-moe", "glm4-moe", "gpt-oss", "deepseek-v2", "deepseek-v3")
"""Nine experts of qwen2-moe, of which ranks have different numbers; biases; shared experts with a
gate and without; layers without experts; latents."""

SHORT = ("qwen3-moe", "deepseek-v3")

CASES = tuple(itertools.product(NAMES, ("fused", "torch"), (2, 4)))
IN_SHORT_RUN = (("qwen3-moe", "fused", 2), ("deepseek-v3", "torch", 2))

DIVIDED: dict[str, Any] = {
    "intermediate_size": 192,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 128,
}
"""Inner values in four slices of a multiple of 16."""

NO_ATTENTION = "qwen3-moe-without-attention"

TOLERANCE = 2e-4

WIDTH: dict[str, Any] = {"cpu_backend": "fused"}
SLICES: dict[str, Any] = {**WIDTH, "sum_slices": 4}

Make = Callable[[str], Path]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    torch.set_num_threads(1)

    @functools.cache
    def made(name: str) -> Path:
        model_type, fields = FAMILY_CHECKPOINTS["qwen3-moe" if name == NO_ATTENTION else name]
        wider = {key: value for key, value in DIVIDED.items() if key in fields}
        if name == "deepseek-v3":
            wider |= {"num_attention_heads": 8, "num_key_value_heads": 8}
        place = tmp_path_factory.mktemp("experts") / name
        folder = make_fallback_checkpoint(place, model_type, {**fields, **wider})
        if name == NO_ATTENTION:
            silence_attention(folder)
        return folder

    return made


def silence_attention(folder: Path) -> None:
    """Write zeros to the last matrices of attention, so that ranks divide no sum but experts."""
    path = folder / "model.safetensors"
    stored = load_file(path)
    for name, tensor in stored.items():
        if name.endswith("o_proj.weight"):
            tensor.zero_()
    save_file(stored, path, metadata={"format": "pt"})


@pytest.fixture(autouse=True)
def _threads(monkeypatch: pytest.MonkeyPatch) -> None:
    use_threads(monkeypatch)


def answers(folder: Path, num_ranks: int, *, is_spread: bool, **settings: Any) -> RankedAnswers:
    """Return the answers of so many ranks, with whole experts or not."""
    return generated(
        folder,
        prompts(),
        tensor_parallel_size=num_ranks,
        enable_expert_parallel=is_spread,
        **settings,
    )


def assert_near(one: RankedAnswers, other: RankedAnswers) -> None:
    assert one.tokens == other.tokens
    for logprobs, near in zip(one.logprobs, other.logprobs, strict=True):
        np.testing.assert_allclose(logprobs, near, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("name", "backend", "num_ranks"),
    [
        *(case for case in CASES if case in IN_SHORT_RUN),
        *(pytest.param(*case, marks=WHOLE) for case in CASES if case not in IN_SHORT_RUN),
    ],
)
def test_answers_are_those_of_divided_experts_and_of_one_rank(
    make: Make, name: str, backend: str, num_ranks: int
) -> None:
    settings = {"cpu_backend": backend}
    alone = answers(make(name), 1, is_spread=False, **settings)
    divided = answers(make(name), num_ranks, is_spread=False, **settings)
    spread = answers(make(name), num_ranks, is_spread=True, **settings)
    assert_near(spread, alone)
    assert_near(spread, divided)
    # Sums over whole experts have other bits.
    assert spread.kernel_set == f"{divided.kernel_set},whole-experts"


@pytest.mark.parametrize("name", cases_of(NAMES, SHORT))
def test_bits_are_the_same_with_sums_in_slices(make: Make, name: str) -> None:
    alone = answers(make(name), 1, is_spread=False, **SLICES)
    assert answers(make(name), 2, is_spread=False, **SLICES) == alone
    for num_ranks in (2, 4):
        assert answers(make(name), num_ranks, is_spread=True, **SLICES) == alone, num_ranks


def test_rows_of_experts_are_added_as_in_one_rank(make: Make) -> None:
    """Without slices, experts alone have the bits of one rank, however many ranks have them."""
    alone = answers(make(NO_ATTENTION), 1, is_spread=False, **WIDTH)
    for num_ranks in (2, 4):
        spread = answers(make(NO_ATTENTION), num_ranks, is_spread=True, **WIDTH)
        assert (spread.tokens, spread.logprobs) == (alone.tokens, alone.logprobs)
    divided = answers(make(NO_ATTENTION), 2, is_spread=False, **WIDTH)
    assert divided.logprobs != alone.logprobs


def test_one_rank_has_all_experts(make: Make) -> None:
    alone = answers(make("qwen3-moe"), 1, is_spread=False, **WIDTH)
    assert answers(make("qwen3-moe"), 1, is_spread=True, **WIDTH) == alone


@pytest.mark.parametrize("settings", [WIDTH, SLICES])
def test_rows_go_in_pieces(
    make: Make, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    """A slot that takes a few rows at a time, fewer than a step has."""
    whole = answers(make("qwen2-moe"), 2, is_spread=True, **settings)
    small = functools.partial(GroupMemory, slot_bytes=4096)
    monkeypatch.setattr(ranks, "GroupMemory", small)
    assert answers(make("qwen2-moe"), 2, is_spread=True, **settings) == whole


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("qwen3-moe", {"quantization": "int4", "kv_cache_dtype": "int8"}),
        ("deepseek-v2", {"dtype": "bfloat16", "pipeline_parallel_size": 2}),
        *(
            pytest.param(name, settings, marks=WHOLE)
            for name in NAMES
            for settings in (
                *({"quantization": kind} for kind in ("int8", "int4", "int8-output")),
                {"dtype": "bfloat16", "pipeline_parallel_size": 2},
            )
        ),
    ],
)
def test_settings_that_change_products(make: Make, name: str, settings: dict[str, Any]) -> None:
    """Scales of inputs are those of slices, and experts are whole in their stage."""
    one = {**SLICES, **settings, "pipeline_parallel_size": 1}
    alone = answers(make(name), 1, is_spread=False, **one)
    assert answers(make(name), 2, is_spread=True, **{**SLICES, **settings}) == alone


@pytest.mark.parametrize("kind", ["w4a16", "mxfp4", "blocks"])
def test_stored_formats(make: Make, tmp_path: Path, kind: str) -> None:
    """Groups of scales are whole in two slices."""
    if kind == "mxfp4":
        folder, _ = make_mxfp4_checkpoints(tmp_path)
    elif kind == "w4a16":
        folder = write_w4a16(tmp_path / kind, make("qwen3-moe"))
    else:
        folder = write_blocks(tmp_path / kind, make("qwen3-moe"), "Q4_0")
    settings = {**WIDTH, "sum_slices": 2, "dtype": "bfloat16"}
    alone = answers(folder, 1, is_spread=False, **settings)
    assert answers(folder, 2, is_spread=True, **settings) == alone


def test_every_instruction_set(make: Make) -> None:
    for isa in instruction_sets():
        settings = {**SLICES, "cpu_isa": isa, "dtype": "bfloat16"}
        alone = answers(make("qwen3-moe"), 1, is_spread=False, **settings)
        assert answers(make("qwen3-moe"), 2, is_spread=True, **settings) == alone, isa


def counts_of(folder: Path, **settings: Any) -> dict[int, list[int]]:
    """Return the tokens of each expert in rank 0, by layer."""
    replica = load(folder, cpu_backend="fused", kv_cache_memory=1 << 22, **settings)
    backend = replica.model_runner.backend
    assert isinstance(backend, CountsExperts)
    counts = backend.count_experts()
    sequences = [Running(slot, prompt, GREEDY, 3) for slot, prompt in enumerate(prompts())]
    Driver.of(replica).finish(sequences, budget=64)
    end_ranks(replica)
    return {layer: tokens.tolist() for layer, tokens in counts.tokens.items()}


def test_experts_of_all_ranks_are_counted(make: Make) -> None:
    folder = make("qwen3-moe")
    alone = counts_of(folder)
    assert counts_of(folder, tensor_parallel_size=2, enable_expert_parallel=True) == alone
    assert all(sum(tokens) for tokens in alone.values())


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("name", "num_batches", "settings"),
    [
        ("qwen3-moe", 2, SLICES),
        pytest.param("deepseek-v3", 20, SLICES, marks=pytest.mark.long),
        pytest.param("qwen3-moe", 20, WIDTH, marks=pytest.mark.long),
        pytest.param("qwen2-moe", 200, SLICES, marks=WHOLE),
    ],
)
def test_random_batches(make: Make, name: str, num_batches: int, settings: dict[str, Any]) -> None:
    """Chunks, prefix hits, preemptions and moved blocks change no bit of a request by itself.

    With slices one rank computes each request alone.
    """
    spread = {"tensor_parallel_size": 2, "enable_expert_parallel": True}
    device = {"device": "cpu", **settings}
    ranked = ExactCell(make(name), num_threads=2, **device, **spread)
    one = ExactCell(make(name), num_threads=1, **device) if "sum_slices" in settings else ranked
    requests = draw_requests(5)
    alone = [one.run([request], SOLO)[0] for request in requests]
    numerics = (cell.replica.info.numerics_fingerprint for cell in (one, ranked))
    assert len(set(numerics)) == 1
    check_batches((ranked, requests, alone), num_batches, seed=2)
    end_ranks(ranked.replica)
