"""Heads over hidden states change no bit, whether they know the target or nothing.

Preemption, prefix hits, chunks, log-probabilities, penalties and dying workers are among them.
"""

import json
from pathlib import Path

import pytest

from support.checkpoints.draft_heads import head_config, random_head, write_head
from support.kernels.fused_kernels import needs_kernels
from support.oracles.exact_requests import make_exact_checkpoint
from support.speculated.cells import PlainAnswers, SpeculatedCell

pytestmark = needs_kernels


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "quantization", "memory"),
    [
        ("eagle3", "int8", "64KiB"),
        pytest.param("eagle", "none", "8MiB", marks=pytest.mark.whole),
    ],
)
def test_a_head_changes_no_bit(tmp_path: Path, method: str, quantization: str, memory: str) -> None:
    target = make_exact_checkpoint(tmp_path, "qwen3")
    fields = {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]} if method == "eagle3" else {}
    head = write_head(tmp_path / "head", head_config(method, **fields), random_head(method))
    settings = {"method": method, "model": str(head), "num_speculative_tokens": 4}
    config = json.dumps({**settings, "adaptive": False, "kv_cache_memory": memory})
    plain = PlainAnswers(target, {"quantization": quantization})
    case = SpeculatedCell(plain, config, predicted_share=0.0)
    case.check(400)
    assert case.counts.num_tokens > 100
    assert case.cell.num_preemptions + case.cell.num_deaths + case.cell.num_moved_blocks > 0
    blocks = case.speculator._proposer.other.blocks  # type: ignore[attr-defined]
    case.cell.replica.model_runner.drop_slots()
    assert blocks.num_free == blocks.capacity
