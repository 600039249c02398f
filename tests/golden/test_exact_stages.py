"""Stages change no bit whatever happens: random batches, chunks, prefix hits, preemptions, deaths,
moved blocks and drafts against each request alone in one process, in bfloat16."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from pagewire_worker.parallel import micro_batches
from pagewire_worker.parallel.rank_model import RankModel
from support.cells import exact_cells
from support.cells.exact_cells import SOLO, ExactCell, Request, Weather
from support.cells.rank_threads import end_ranks, use_threads
from support.kernels.fused_kernels import needs_kernels
from support.oracles import exact_requests
from support.oracles.exact_requests import check_batches, draw_requests, make_exact_checkpoint
from support.products import WHOLE
from support.speculated.cells import NGRAM, PlainAnswers, SpeculatedCell

pytestmark = needs_kernels

KERNELS: dict[str, Any] = {"device": "cpu", "cpu_backend": "fused"}


@pytest.fixture(autouse=True)
def _ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    use_threads(monkeypatch)
    # Small steps have several micro-batches, too.
    monkeypatch.setattr(micro_batches, "LEAST_TOKENS", 5)


def keep_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let blocks stay in their worker, as they do where stages have several cache groups."""

    def without_moves(generator: random.Random, longest: int) -> Weather:
        return replace(exact_cells.draw_weather(generator, longest), moves=frozenset())

    monkeypatch.setattr(exact_requests, "draw_weather", without_moves)


def varied(requests: list[Request]) -> list[Request]:
    """Let some have several choices, which copy blocks, and some report on their prompts."""
    fields: list[dict[str, Any]] = [{}, {"n": 3}, {"prompt_logprobs": 2}]
    return [
        replace(one, sampling=replace(one.sampling, **fields[number % len(fields)]))
        for number, one in enumerate(requests)
    ]


@pytest.mark.parametrize(
    ("name", "num_batches"),
    [
        ("qwen3", 10),
        pytest.param("gpt-oss", 10, marks=pytest.mark.long),
        *(
            pytest.param(name, 100, marks=WHOLE)
            for name in ("qwen3", "gemma2", "gpt-oss", "qwen2-moe", "deepseek-v3")
        ),
    ],
)
def test_a_request_has_the_bits_of_one_process_in_any_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, num_batches: int
) -> None:
    folder = make_exact_checkpoint(tmp_path, name)
    requests = varied(draw_requests(len(name)))
    alone = ExactCell(folder, num_threads=1, **KERNELS)
    answers = [alone.run([request], SOLO)[0] for request in requests]
    staged = ExactCell(folder, num_threads=1, **KERNELS, pipeline_parallel_size=2)
    info, told = staged.replica.info, alone.replica.info
    assert info.numerics_fingerprint == told.numerics_fingerprint
    num_copies, follow = 0, RankModel.copy_blocks

    def counted(rank: RankModel, sources: Tensor, destinations: Tensor) -> None:
        nonlocal num_copies
        num_copies += len(sources)
        follow(rank, sources, destinations)

    monkeypatch.setattr(RankModel, "copy_blocks", counted)
    if len(info.cache_groups) > 1:
        keep_blocks(monkeypatch)
    check_batches((staged, requests, answers), num_batches, seed=1)
    assert staged.num_cached_tokens > 0
    assert staged.num_deaths > 0
    assert staged.num_preemptions > 0
    assert num_copies > 0
    assert (staged.num_moved_blocks > 0) == (len(info.cache_groups) == 1)
    end_ranks(staged.replica)


@pytest.mark.long
@pytest.mark.parametrize("num_ranks", [1, pytest.param(2, marks=WHOLE)])
def test_drafts_change_no_bit(tmp_path: Path, num_ranks: int) -> None:
    settings = {**KERNELS, "pipeline_parallel_size": 2, "tensor_parallel_size": num_ranks}
    target = make_exact_checkpoint(tmp_path, "qwen3")
    case = SpeculatedCell(PlainAnswers(target, settings, num_threads=2), NGRAM)
    case.check(400)
    assert case.counts.num_tokens > 100
    end_ranks(case.cell.replica)
