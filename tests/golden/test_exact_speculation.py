"""Speculation changes no bit: random batches with drafts against each request alone without any.

Preemption, prefix hits, chunks, log-probabilities, penalties and dying workers are among them.
"""

import functools
from collections.abc import Callable

import pytest

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


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "quantization"),
    [
        ("llama", "none"),
        ("qwen2", "int8"),
        ("gemma3", "none"),
        ("qwen3-moe", "int8"),
        ("deepseek-v3", "none"),
    ],
)
def test_many_drafts_change_no_bit(
    prepare: Callable[[str, str], SpeculatedCell], name: str, quantization: str
) -> None:
    prepare(name, quantization).check(20_000)
