"""The same bits with ranks whatever happens: random batches, chunks, prefix hits, preemptions,
moved blocks and drafts against each request alone, in bfloat16."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.cells.exact_cells import SOLO, ExactCell
from support.cells.rank_threads import use_threads
from support.checkpoints.draft_heads import head_config, random_head, write_head
from support.kernels.fused_kernels import needs_kernels
from support.oracles.exact_requests import check_batches, draw_requests, make_exact_checkpoint
from support.products import WHOLE
from support.speculated.cells import NGRAM, PlainAnswers, SpeculatedCell

pytestmark = [needs_kernels, pytest.mark.long]

RANKS: dict[str, Any] = {"device": "cpu", "cpu_backend": "fused", "tensor_parallel_size": 2}


@pytest.fixture(autouse=True)
def _ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    use_threads(monkeypatch)


@pytest.mark.parametrize(
    ("name", "num_batches"),
    [
        ("qwen3", 20),
        *(pytest.param(name, 100, marks=WHOLE) for name in ("qwen3", "gemma2", "gpt-oss")),
    ],
)
def test_a_request_has_the_same_bits_in_any_batch(
    tmp_path: Path, name: str, num_batches: int
) -> None:
    cell = ExactCell(make_exact_checkpoint(tmp_path, name), num_threads=2, **RANKS)
    requests = draw_requests(len(name))
    alone = [cell.run([request], SOLO)[0] for request in requests]
    check_batches((cell, requests, alone), num_batches, seed=1)
    assert cell.num_moved_blocks > 0
    assert cell.replica.group is not None
    cell.replica.group.close()


@pytest.mark.parametrize("method", ["ngram", pytest.param("eagle3", marks=WHOLE)])
def test_drafts_change_no_bit(tmp_path: Path, method: str) -> None:
    target, config = make_exact_checkpoint(tmp_path, "qwen3"), NGRAM
    if method != "ngram":
        fields = {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}
        head = write_head(tmp_path / "head", head_config(method, **fields), random_head(method))
        settings = {"method": method, "model": str(head), "num_speculative_tokens": 4}
        config = json.dumps({**settings, "adaptive": False, "kv_cache_memory": "8MiB"})
    plain = PlainAnswers(target, RANKS, num_threads=2)
    case = SpeculatedCell(plain, config)
    case.check(400)
    assert case.counts.num_tokens > 100
    assert case.cell.replica.group is not None
    case.cell.replica.group.close()
