"""The same bits whatever happens: random batches against each request alone, in bfloat16.

Tokens and log-probabilities are compared as they are, without any tolerance.
"""

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from pagewire_worker.convert.gguf_folder import describe_gguf
from pagewire_worker.cpu_kernels import selection as choice
from pagewire_worker.cpu_kernels.library import instruction_sets
from support.cells.exact_cells import SOLO, ExactCell
from support.checkpoints.checkpoints import make_checkpoint
from support.checkpoints.gguf_files import write_gguf
from support.kernels.fused_kernels import needs_kernels
from support.oracles.exact_requests import (
    CHECKPOINTS,
    FAMILIES,
    VOCAB,
    Case,
    check_batches,
    draw_requests,
    make_exact_checkpoint,
)
from support.products import cases_of

pytestmark = needs_kernels

BLOCKS = ("qwen2 in Q4_1", "qwen3 in Q8_0")
"""Checkpoints of the usual families in the blocks of a GGUF file."""

INT8_CACHES = ("llama over int8", "gpt-oss over int8")
"""Over keys and values of int8; of gpt-oss some layers have windows, and all have sinks."""

IN_SHORT_RUN = (
    *("llama", "qwen3", "gemma2", "olmo2", "starcoder2", "qwen2-mixed", "qwen3-moe", "gpt-oss"),
    *("deepseek-v3", "qwen3 in Q8_0", "llama over int8", "gpt-oss over int8"),
)
"""Each kind of norm, attention, experts, blocks and cache is in one of them."""

IN_LONG_RUN = {("qwen2 in Q4_1", 2)}
"""Checkpoints and seeds; the others are in the whole product."""

NUM_THREADS = 1
"""More would wait for each other on so small a model; that their number does not matter is shown
kernel by kernel."""


@pytest.fixture(scope="module")
def prepare(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    """Make a cell and its solo answers the first time an architecture is asked for."""

    @functools.cache
    def make(name: str) -> Case:
        name, _, cache = name.partition(" over ")
        stem, _, blocks = name.partition(" in ")
        place = tmp_path_factory.mktemp("exact")
        folder = make_exact_checkpoint(place, stem)
        if blocks:
            write_gguf(place / "m.gguf", folder, blocks)
            folder = place / "gguf"
            folder.mkdir()
            describe_gguf(place / "m.gguf", folder, is_linked=True)
        cell = ExactCell(
            folder,
            num_threads=NUM_THREADS,
            device="cpu",
            cpu_backend="fused",
            kv_cache_dtype=cache or "auto",
        )
        requests = draw_requests(len(name))
        alone = [cell.run([request], SOLO)[0] for request in requests]
        return cell, requests, alone

    return make


@pytest.mark.parametrize(
    "name", cases_of([*sorted(CHECKPOINTS), *FAMILIES, *BLOCKS, *INT8_CACHES], IN_SHORT_RUN)
)
def test_batches_equal_requests_alone(prepare: Callable[[str], Case], name: str) -> None:
    case = prepare(name)
    check_batches(case, 10 if name in CHECKPOINTS else 5, seed=1)
    cell = case[0]
    assert cell.num_deaths > 0
    assert cell.num_moved_blocks > 0
    if name in CHECKPOINTS:
        assert cell.num_preemptions > 0
    assert cell.num_cached_tokens > 0


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "seed"),
    [
        pytest.param(name, seed, marks=[] if (name, seed) in IN_LONG_RUN else [pytest.mark.whole])
        for name in [*sorted(CHECKPOINTS), "qwen2 in Q4_1"]
        for seed in range(2, 5)
    ],
)
def test_many_batches_equal_requests_alone(
    prepare: Callable[[str], Case], name: str, seed: int
) -> None:
    check_batches(prepare(name), 80, seed=seed)


def test_a_difference_would_be_found(
    prepare: Callable[[str], Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same requests on another instruction set differ in last bits."""
    _, requests, alone = prepare("llama")
    if list(instruction_sets()) == ["avx2"]:
        pytest.skip("there is only one instruction set here")
    monkeypatch.setattr(choice, "choose_instruction_set", lambda *_: ("avx2", "for this test"))
    make_checkpoint(tmp_path, vocab=VOCAB, layers=3, **CHECKPOINTS["llama"])
    cell = ExactCell(tmp_path, num_threads=NUM_THREADS)
    others = [cell.run([request], SOLO)[0] for request in requests]
    assert others != alone
    logprobs = [[one and one.logprob for one in answer.logprobs] for answer in others]
    assert all(one is None or one == one for answer in logprobs for one in answer)  # no NaN
