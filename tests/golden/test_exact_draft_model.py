"""A draft model changes no bit, whether it is the model itself or knows nothing.

Preemption, prefix hits, chunks, log-probabilities, penalties and dying workers are among them.
"""

import json
from pathlib import Path

import pytest

from pagewire_worker.speculation.draft_model import DraftModel
from pagewire_worker.speculation.lookups_first import LookupsFirst
from support.checkpoints.checkpoints import make_checkpoint
from support.kernels.fused_kernels import needs_kernels
from support.oracles.exact_requests import VOCAB
from support.speculated.cells import PlainAnswers, SpeculatedCell
from support.speculated.targets import Target, write_target

pytestmark = needs_kernels


def make_cell(folder: Path, name: str, quantized: str, **draft: object) -> SpeculatedCell:
    """Return a cell whose draft is the target itself, or of the `model` that is named."""
    target = write_target(folder, Target(name))
    settings = {"method": "draft_model", "num_speculative_tokens": 4, "adaptive": False}
    config = {**settings, "model": str(target), **draft}
    plain = PlainAnswers(target, {"quantization": quantized})
    return SpeculatedCell(plain, json.dumps(config), predicted_share=0.0)


def blocks_of(case: SpeculatedCell) -> tuple[int, int]:
    """Free blocks of the draft model after all requests, and all its blocks."""
    proposer = case.speculator._proposer
    assert isinstance(proposer, LookupsFirst)
    model = proposer.other
    assert isinstance(model, DraftModel)
    blocks = model.blocks
    case.cell.replica.model_runner.drop_slots()
    return blocks.num_free, blocks.capacity


@pytest.mark.parametrize(
    ("name", "quantization", "num_tokens"),
    [("qwen3", "none", 500), ("gpt-oss", "int8", 300)],
)
def test_the_model_itself_is_nearly_always_right(
    tmp_path: Path, name: str, quantization: str, num_tokens: int
) -> None:
    case = make_cell(tmp_path, name, quantization)
    case.check(num_tokens)
    right = int(case.counts.right_at.sum())
    assert 0.9 * case.counts.num_tokens < right
    cell = case.cell
    assert cell.num_preemptions + cell.num_deaths + cell.num_moved_blocks + cell.num_cached_tokens
    num_free, num_blocks = blocks_of(case)
    assert num_free == num_blocks


def test_a_model_that_knows_nothing_is_nearly_always_wrong(tmp_path: Path) -> None:
    """Of another family, with a cache that holds a part of the sequences, unquantized."""
    other = make_checkpoint(tmp_path / "other", vocab=VOCAB, layers=1, seed=9)
    case = make_cell(
        tmp_path, "qwen3", "int8", model=str(other), quantization="none", kv_cache_memory="40KiB"
    )
    case.check(400)
    assert case.counts.num_tokens > 100
    assert case.counts.right_at.sum() < 0.1 * case.counts.num_tokens
    num_free, num_blocks = blocks_of(case)
    assert num_free == num_blocks <= 20


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "quantization"),
    [
        ("deepseek-v3", "none"),
        pytest.param("gemma3", "none", marks=pytest.mark.whole),
        pytest.param("qwen3-moe", "int8", marks=pytest.mark.whole),
    ],
)
def test_many_drafts_of_a_model_change_no_bit(tmp_path: Path, name: str, quantization: str) -> None:
    make_cell(tmp_path, name, quantization, kv_cache_memory="1MiB").check(15_000)
