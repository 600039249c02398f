"""Speculation changes no bit: random batches with drafts against each request alone without any.

Preemption, prefix hits, chunks, log-probabilities, penalties and dying workers are among them.
"""

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from support.adapters.model_adapters import make_adapter
from support.cells.exact_cells import SOLO
from support.kernels.fused_kernels import needs_kernels
from support.oracles.exact_requests import make_exact_checkpoint
from support.oracles.speculated import SpeculatedCell

pytestmark = needs_kernels


@pytest.fixture(scope="module")
def prepare(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], SpeculatedCell]:
    """Make the cells of a checkpoint and a quantization the first time they are asked for."""

    @functools.cache
    def make(name: str, quantization: str) -> SpeculatedCell:
        folder = make_exact_checkpoint(tmp_path_factory.mktemp("speculation"), name)
        return SpeculatedCell(folder, {"quantization": quantization})

    return make


@pytest.mark.parametrize(
    ("name", "quantization", "num_tokens"),
    [("qwen3", "none", 2500), ("mistral", "int8", 1500), ("gpt-oss", "none", 1000)],
)
def test_drafts_change_no_bit(
    prepare: Callable[[str, str], SpeculatedCell], name: str, quantization: str, num_tokens: int
) -> None:
    case = prepare(name, quantization)
    case.check(num_tokens)
    assert case.counts.right_at.min() > 0
    assert case.counts.num_tokens > case.counts.right_at.sum()
    assert case.cell.num_cached_tokens > 0
    assert case.cell.num_deaths > 0


def test_drafts_change_no_bit_of_adapters(tmp_path: Path) -> None:
    folder = make_exact_checkpoint(tmp_path, "qwen3")
    adapters = [
        make_adapter(tmp_path / str(rank), folder, rank=rank, seed=rank, scale=1.0)
        for rank in (3, 16)
    ]
    settings = {"enable_lora": True, "max_loras": 2, "max_lora_rank": 16}
    case = SpeculatedCell(folder, settings, adapters=adapters)
    for first in (1, 2):  # each adapter changes an answer
        assert any(
            case.cell.run([replace(case.requests[number], adapter_slot=None)], SOLO)[0]
            != case.alone[number]
            for number in range(first, len(case.requests), 3)
        )
    case.check(300)
    assert case.counts.right_at.min() > 0
    assert case.counts.num_tokens > case.counts.right_at.sum()


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "quantization"),
    [
        ("qwen3-moe", "int8"),
        pytest.param("gemma3", "none", marks=pytest.mark.whole),
        pytest.param("llama", "none", marks=pytest.mark.whole),
        pytest.param("qwen2", "int8", marks=pytest.mark.whole),
        pytest.param("deepseek-v3", "none", marks=pytest.mark.whole),
    ],
)
def test_many_drafts_change_no_bit(
    prepare: Callable[[str, str], SpeculatedCell], name: str, quantization: str
) -> None:
    prepare(name, quantization).check(20_000)
