"""Checkpoints that the formats' own libraries wrote: logits are those of the weights that the
library dequantizes itself (tests/support/quantized/write.py)."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from pagewire_worker.backend.sampled_tokens import SampledTokens
from pagewire_worker.cpu_kernels import abi
from support.cells.worker_driver import GREEDY, Driver, Running, load
from support.poison import poisoned
from support.products import cases_of

FOLDER = Path(__file__).parents[3] / "support" / "quantized"
FORMATS = sorted(folder.parent.name for folder in FOLDER.glob("*/config.json"))
TOKENS = [(7 * position + 3) % 128 for position in range(24)]


def logits_of(
    one: Driver, lengths: Sequence[int], monkeypatch: pytest.MonkeyPatch, max_tokens: int = 1
) -> torch.Tensor:
    """Return the logits after so many of TOKENS, computed together, and after the next tokens."""
    backend, found = one.model_runner.backend, []
    logits = backend.logits

    def noted(hidden: torch.Tensor, *_: object) -> SampledTokens:
        found.append(logits(hidden).clone())
        return SampledTokens(found[-1].argmax(dim=1))

    sequences = [
        Running(slot=slot, prompt=TOKENS[:length], sampling=GREEDY, max_tokens=max_tokens)
        for slot, length in enumerate(lengths)
    ]
    with monkeypatch.context() as patch:
        patch.setattr(backend, "greedy", noted)
        one.finish(sequences, budget=64)
    return torch.cat([rows for rows in found if len(rows)])


def assert_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Compare logits with those of a library."""
    scale = float(expected.abs().max())
    torch.testing.assert_close(found, expected, atol=1e-5 * scale, rtol=1e-3)
    assert found.argmax(-1).tolist() == expected.argmax(-1).tolist()


def test_there_are_formats() -> None:
    assert len(FORMATS) >= 14


@pytest.mark.parametrize("kernels", ["fused", "torch"])
@pytest.mark.parametrize("name", FORMATS)
def test_logits_are_those_of_the_dequantized_model(
    name: str, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = load_file(FOLDER / name / "expected.safetensors")["logits"]
    one = Driver.of(load(FOLDER / name, cpu_backend=kernels, dtype="float32"))
    if kernels == "fused" and name.startswith("fp8"):
        layers = one.model_runner.backend._decoder.layers
        assert {part.storage.kind for layer in layers for part in layer.linears} == {abi.FLOATS8}
    lengths = range(1, len(TOKENS) + 1)
    found = torch.cat([logits_of(one, [length], monkeypatch) for length in lengths])
    assert_same(found, expected)
    together = one.generate([TOKENS[:length] for length in (3, 24, 11)], max_tokens=6)
    alone = [one.generate([TOKENS[:length]], max_tokens=6)[0] for length in (3, 24, 11)]
    assert together == alone


@pytest.mark.parametrize("name", [*FORMATS, "fp8-static"])
def test_a_text_model_beside_a_tower_is_read_as_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Towers are quantized, too, or named as left out; settings are on either level."""
    source = FOLDER / name.replace("static", "tensor")
    data = json.loads((source / "config.json").read_text())
    stored = load_file(source / "model.safetensors")
    settings = {**data.pop("quantization_config"), "modules_to_not_convert": ["model.visual"]}
    if name == "fp8-static":
        # As Ministral 3 is published.
        settings = {"quant_method": "fp8", "activation_scheme": "static"}
        scales = [key for key in stored if key.endswith("weight_scale")]
        stored |= {key.replace("weight", "activation"): torch.ones(()) for key in scales}
        stored |= {f"{key}_inv": stored.pop(key) for key in scales}
    text = {**data, "model_type": "qwen3_vl_text"}
    outer = {"architectures": ["Qwen3VLForConditionalGeneration"], "vision_config": {}}
    place = text if len(name) % 2 else outer
    place["quantization_config"] = settings
    (tmp_path / "config.json").write_text(json.dumps({**outer, "text_config": text}))
    tensors = {}
    for key, tensor in stored.items():
        tensors[key.replace("model.", "model.language_model.", 1)] = tensor
        if key.startswith("model.layers.0."):
            tensors[key.replace("model.layers", "model.visual.blocks")] = tensor.clone()
    save_file(tensors, tmp_path / "model.safetensors")
    expected = load_file(source / "expected.safetensors")["logits"]
    one = Driver.of(load(tmp_path, cpu_backend="fused", dtype="float32"))
    lengths = range(1, len(TOKENS) + 1)
    assert_same(torch.cat([logits_of(one, [length], monkeypatch) for length in lengths]), expected)


TRITON = {
    "attention_backend": "triton",
    "linear_backend": "fixed-tile",
    "max_num_batched_tokens": 8,
    "max_num_seqs": 2,
    "max_model_len": 16,
}


NUM_CODED = {"gptq-4-order": 4}
"""Matrices that keep codes, where these are not all 8 of the layers: merged matrices whose parts
have orders of their own become values."""


ON_TRITON_IN_SHORT_RUN = ("fp8-block", "gptq-4-order", "int8", "nf4", "w4a16-zeros", "w8a8")


@pytest.mark.parametrize("name", cases_of(FORMATS, ON_TRITON_IN_SHORT_RUN))
def test_triton_gives_these_logits_and_the_same_bits_alone_and_in_a_batch(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="pagewire_worker")
    expected = load_file(FOLDER / name / "expected.safetensors")["logits"]
    with poisoned():
        one = Driver.of(load(FOLDER / name, dtype="float32", **TRITON))
        together = logits_of(one, (2, 5), monkeypatch, max_tokens=2)
        alone = logits_of(one, (5,), monkeypatch, max_tokens=2)
    assert_same(together[:2], expected[[1, 4]])
    assert torch.equal(together[[1, 3]], alone)
    backend = one.model_runner.backend
    assert backend.is_exact
    num_coded = NUM_CODED.get(name, 8)
    assert f"{num_coded} matrices keep the codes" in caplog.text
    assert backend.kernel_set.endswith("+codes-16") is (num_coded > 0)
