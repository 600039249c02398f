"""Pipeline parallelism: tokens, log-probabilities and names of kernels are those of one process.

Stages whose layers are divided between ranks give the bits of these ranks alone.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from pagewire_shared.sampling.pooling import PoolingParams
from pagewire_worker.parallel import micro_batches
from support.cells.rank_threads import end_ranks, use_threads
from support.cells.ranked_answers import GREEDY, generated, prompts
from support.cells.worker_driver import Driver, Running, load
from support.checkpoints.checkpoints import make_checkpoint
from support.checkpoints.fallback_checkpoints import make_fallback_checkpoint
from support.checkpoints.packed_checkpoints import write_w4a16
from support.kernels.fused_kernels import needs_kernels
from support.oracles.family_checkpoints import FAMILY_CHECKPOINTS, MAX_POSITIONS
from support.products import WHOLE

pytestmark = needs_kernels

DENSE = (
    *("gemma2", "gemma3", "glm4", "granite", "phi3", "smollm3", "starcoder2", "qwen3-yarn"),
    "olmo2",
)
EXPERTS = ("qwen2-moe", "gpt-oss", "deepseek-v2", "deepseek-v3")

PACKED, MIXED = "packed", "packed, but for one matrix"
"""Of codes; in the second one, the matrices of one attention cannot be merged."""

IN_SHORT_RUN = (
    *((name, "fused", 2, 1) for name in ("gemma3", "gpt-oss", "deepseek-v3", MIXED)),
    *(("olmo2", "torch", 3, 1), ("smollm3", "fused", 2, 2)),
)
"""Windows and cache groups, experts with sinks, latents behind a layer without experts, codes,
norms over all heads in three stages, and an embedding that both ends read, divided."""

IN_LONG_RUN = (
    *(("gemma2", "fused", 3, 1), ("qwen2-moe", "torch", 2, 1), (PACKED, "torch", 2, 1)),
    *(("deepseek-v2", "fused", 2, 2), ("gemma3", "torch", 2, 2)),
)

Make = Callable[[str], Path]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    torch.set_num_threads(1)

    @functools.cache
    def made(name: str) -> Path:
        place = tmp_path_factory.mktemp("stages")
        if name not in (PACKED, MIXED):
            model_type, fields = FAMILY_CHECKPOINTS[name]
            # Experts that kernels read in parts, too.
            wider = {"moe_intermediate_size": 64} if "moe_intermediate_size" in fields else {}
            return make_fallback_checkpoint(place / "m", model_type, {**fields, **wider})
        plain = make_checkpoint(place / "plain", architecture="Qwen3ForCausalLM", layers=3)
        packed = write_w4a16(place / "packed", plain)
        if name == MIXED:
            unpack(packed / "model.safetensors", plain, "model.layers.0.self_attn.v_proj.weight")
        return packed

    return made


def unpack(file: Path, plain: Path, name: str) -> None:
    """Store a matrix plainly in a packed checkpoint."""
    stored = load_file(file)
    kept = {key: value for key, value in stored.items() if not key.startswith(name)}
    save_file({**kept, name: load_file(plain / "model.safetensors")[name]}, file)


@pytest.fixture(autouse=True)
def _threads(monkeypatch: pytest.MonkeyPatch) -> None:
    use_threads(monkeypatch)
    # Small steps have several micro-batches, too.
    monkeypatch.setattr(micro_batches, "LEAST_TOKENS", 5)


Case = tuple[str, str, int, int]


def marked(case: Case) -> Any:
    """Return the case, marked as one of the long run or of the whole product."""
    return pytest.param(*case, marks=[pytest.mark.long] if case in IN_LONG_RUN else WHOLE)


def cases() -> list[Any]:
    """Return name, backend, stages and ranks of each stage."""
    found = [
        (name, backend, *sizes)
        for name in (*DENSE, *EXPERTS, PACKED, MIXED)
        for backend in ("fused", "torch")
        for sizes in ((2, 1), (2, 2), *(((3, 1),) if name in DENSE else ()))
        if not (name == "olmo2" and sizes == (2, 2))
    ]
    assert {*IN_SHORT_RUN, *IN_LONG_RUN} <= {*found}
    return [*IN_SHORT_RUN, *(marked(case) for case in found if case not in IN_SHORT_RUN)]


@pytest.mark.parametrize(("name", "backend", "num_stages", "num_ranks"), cases())
def test_stages_have_the_bits_of_one_process(
    make: Make, name: str, backend: str, num_stages: int, num_ranks: int
) -> None:
    folder, given = make(name), prompts()
    settings: dict[str, Any] = {"cpu_backend": backend, "tensor_parallel_size": num_ranks}
    staged = generated(folder, given, **settings, pipeline_parallel_size=num_stages)
    assert staged == generated(folder, given, **settings)
    # Of a matrix that only one stage has.
    assert (",split" in staged.kernel_set) == (name == MIXED and backend == "fused")


@pytest.mark.parametrize(
    "settings",
    [
        {"quantization": "int4", "kv_cache_dtype": "int8"},
        pytest.param({"quantization": "int8-output", "dtype": "bfloat16"}, marks=pytest.mark.long),
    ],
)
def test_quantized_while_loading(make: Make, settings: dict[str, str]) -> None:
    folder, given = make("smollm3"), prompts()
    staged = generated(folder, given, **settings, pipeline_parallel_size=2)
    assert staged == generated(folder, given, **settings)


def test_vectors_of_prompts(make: Make) -> None:
    """The mean is over the states of all tokens, in chunks and micro-batches."""
    found = []
    for num_stages in (1, 2):
        replica = load(
            make("gemma3"),
            cpu_backend="fused",
            max_model_len=MAX_POSITIONS,
            max_num_batched_tokens=64,
            kv_cache_memory=1 << 23,
            pipeline_parallel_size=num_stages,
        )
        kinds = (PoolingParams(pooling="mean"), PoolingParams())
        sequences = [
            Running(slot, prompt, GREEDY, 1, pooling=kinds[slot % 2])
            for slot, prompt in enumerate(prompts())
        ]
        Driver.of(replica).finish(sequences, budget=24)
        end_ranks(replica)
        found.append([one.vector.tobytes() for one in sequences if one.vector is not None])
    assert found[0] == found[1]
    assert len(found[0]) == len(prompts())


def test_a_fault_in_the_first_stage_fails_its_sequence(tmp_path: Path) -> None:
    """Keys that are not finite, in a chunk that samples nothing: no logits show them."""
    folder = make_checkpoint(tmp_path / "m", architecture="Qwen3ForCausalLM", layers=2)
    stored = load_file(folder / "model.safetensors")
    stored["model.layers.0.self_attn.k_norm.weight"][:] = torch.inf
    save_file(stored, folder / "model.safetensors")
    settings = {"max_num_batched_tokens": 64, "kv_cache_memory": 1 << 22, "cpu_backend": "fused"}
    for num_stages in (1, 2):
        replica = load(folder, **settings, pipeline_parallel_size=num_stages)
        sequence = Running(3, prompts([41])[0], GREEDY, 1)
        result = Driver.of(replica).step([sequence], 24)
        end_ranks(replica)
        assert (list(result.counts), list(result.failed_slots)) == ([], [3]), num_stages


def test_steps_of_micro_batches_have_the_bits_of_whole_ones(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, given = make("gemma3"), prompts([40, 3, 60, 1, 9, 25])
    settings: dict[str, Any] = {"cpu_backend": "fused", "dtype": "bfloat16", "budget": 60}
    numbers = []
    split = micro_batches.split_batch

    def counted(batch: Any, number: int) -> Any:
        numbers.append(number)
        return split(batch, number)

    monkeypatch.setattr("pagewire_worker.parallel.rank_model.split_batch", counted)
    small = generated(folder, given, **settings, pipeline_parallel_size=2)
    assert max(numbers) == 8
    numbers.clear()
    monkeypatch.setattr(micro_batches, "LEAST_TOKENS", 1000)
    whole = generated(folder, given, **settings, pipeline_parallel_size=2)
    assert set(numbers) == {1}
    assert small == whole == generated(folder, given, **settings)
