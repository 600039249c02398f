"""Checkpoints that the formats' own libraries wrote: logits are those of the weights that the
library dequantizes itself (tests/support/quantized/write.py)."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pagewire_worker.backend.sampled_tokens import SampledTokens
from support.cells.worker_driver import GREEDY, Driver, Running, load

FOLDER = Path(__file__).parents[3] / "support" / "quantized"
FORMATS = sorted(folder.parent.name for folder in FOLDER.glob("*/config.json"))
TOKENS = [(7 * position + 3) % 128 for position in range(24)]


def logits_of(one: Driver, monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    """Return the logits after each token of TOKENS, read one by one."""
    backend, found = one.model_runner.backend, []
    logits = backend.logits

    def noted(hidden: torch.Tensor) -> SampledTokens:
        found.append(logits(hidden).clone())
        return SampledTokens(found[-1].argmax(dim=1))

    monkeypatch.setattr(backend, "greedy", noted)
    for length in range(1, len(TOKENS) + 1):
        sequence = Running(slot=0, prompt=TOKENS[:length], sampling=GREEDY, max_tokens=1)
        one.finish([sequence], budget=64)
    return torch.cat([rows for rows in found if len(rows)])


def test_there_are_formats() -> None:
    assert len(FORMATS) >= 14


@pytest.mark.parametrize("kernels", ["fused", "torch"])
@pytest.mark.parametrize("name", FORMATS)
def test_logits_are_those_of_the_dequantized_model(
    name: str, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = load_file(FOLDER / name / "expected.safetensors")["logits"]
    one = Driver.of(load(FOLDER / name, cpu_backend=kernels, dtype="float32"))
    found = logits_of(one, monkeypatch)
    scale = float(expected.abs().max())
    torch.testing.assert_close(found, expected, atol=1e-5 * scale, rtol=1e-3)
    assert found.argmax(-1).tolist() == expected.argmax(-1).tolist()
    together = one.generate([TOKENS[:length] for length in (3, 24, 11)], max_tokens=6)
    alone = [one.generate([TOKENS[:length]], max_tokens=6)[0] for length in (3, 24, 11)]
    assert together == alone
