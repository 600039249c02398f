"""Scales of checkpoints for keys and values of 8-bit floats: names, faults, and logits of a model
whose keys and values are rounded as they say."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from unit.worker.checkpoint.test_stored_golden import FOLDER, TRITON, logits_of
from unit.worker.triton_kernels.device_casts import round_as_devices_do

from pagewire_shared.errors import StartupError
from pagewire_shared.model_files.quantization import FP8_CACHE, cache_scheme
from pagewire_worker.checkpoint.dtypes import FP8
from pagewire_worker.kv.kv_cache import LayerCache
from support.cells.worker_driver import Driver, load
from support.poison import poisoned

SCHEME = {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True}
SCALES = [(0.0313, 0.0057), (0.0011, 0.27)]
"""(key, value) of the two layers: the keys of the second one are up to 0.5, and others clamped."""

NEW = ("self_attn.k_scale", "self_attn.v_scale")
NAMES = {
    "compressed-tensors": NEW,
    "older compressed-tensors": ("self_attn.k_proj.output_scale", "self_attn.v_proj.output_scale"),
    "ModelOpt": ("self_attn.k_proj.k_scale", "self_attn.v_proj.v_scale"),
}


def write(folder, scales=SCALES, names=NEW, scheme=SCHEME, **tensors):
    """Write the checkpoint w4a16 with scales, and return its folder."""
    source = FOLDER / "w4a16"
    data = json.loads((source / "config.json").read_text())
    data["quantization_config"]["kv_cache_scheme"] = scheme
    (folder / "config.json").write_text(json.dumps(data))
    stored = load_file(source / "model.safetensors")
    for layer, pair in enumerate(scales):
        for name, scale in zip(names, pair, strict=False):
            stored[f"model.layers.{layer}.{name}"] = torch.tensor([scale])
    save_file({**stored, **tensors}, folder / "model.safetensors")
    return folder


def found(folder, monkeypatch, **settings):
    """Return logits of a prompt and of two more tokens, and the backend."""
    settings = {"dtype": "float32", **settings}
    one = Driver.of(load(folder, **settings))
    return logits_of(one, (7,), monkeypatch, max_tokens=3), one.model_runner.backend


def rounded_by_scales(monkeypatch):
    """Let torch's cache hold what 8-bit floats times the scales are."""
    write, seen = LayerCache.write, []

    def rounded(cache, slots, key, value, faults=None):
        pair = SCALES[len(seen) % 2]
        seen.append(pair)
        parts = [
            (part / scale).clamp(-448, 448).to(FP8).float() * scale
            for part, scale in zip((key, value), pair, strict=True)
        ]
        write(cache, slots, *parts, faults)

    monkeypatch.setattr(LayerCache, "write", rounded)
    return seen


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_logits_are_those_of_dequantized_keys_and_values(names, tmp_path, monkeypatch, caplog):
    """--kv-cache-dtype auto takes the type that the checkpoint was made for."""
    caplog.set_level("INFO", logger="pagewire_worker")
    folder = write(tmp_path, names=names)
    with poisoned(), monkeypatch.context() as patch:
        round_as_devices_do(patch)
        logits, backend = found(folder, monkeypatch, **TRITON)
    assert backend.kv_cache.layers[0].key.dtype == FP8
    assert ",kv=float8_e4m3fn-scaled" in backend.kernel_set
    assert "the KV cache is fp8_e4m3, as the checkpoint was made for" in caplog.messages
    assert "the KV cache has scales of the checkpoint" in caplog.messages
    plain, _ = found(folder, monkeypatch, cpu_backend="torch", attention_backend="reference")
    seen = rounded_by_scales(monkeypatch)
    expected, _ = found(folder, monkeypatch, cpu_backend="torch", attention_backend="reference")
    assert seen
    scale = float(expected.abs().max())
    torch.testing.assert_close(logits, expected, atol=1e-5 * scale, rtol=1e-3)
    assert (plain - expected).abs().max() > 1e-2 * scale


def test_one_scale_stands_for_both_and_none_for_1(tmp_path, monkeypatch):
    settings = {**TRITON, "kv_cache_dtype": FP8_CACHE}
    round_as_devices_do(monkeypatch)
    results = []
    for scales, names in (
        ([(0.02,), (0.03,)], ("self_attn.kv_scale",)),
        ([(0.02, 0.02), (0.03, 0.03)], NEW),
        ([], NEW),
        ([(1.0, 1.0)] * 2, NEW),
    ):
        with poisoned():
            results.append(found(write(tmp_path, scales, names), monkeypatch, **settings))
    (one, _), (both, scaled), (none, plain), (ones, _) = results
    assert torch.equal(one, both)
    assert torch.equal(none, ones)
    assert not torch.equal(both, ones)
    assert scaled.kernel_set != plain.kernel_set


@pytest.mark.parametrize(
    ("scales", "names", "text"),
    [
        (
            [(0.1, 0.0)],
            NEW,
            "the tensor model.layers.0.self_attn.v_scale is 0.0, a scale is positive",
        ),
        ([(float("nan"), 1.0)], NEW, "self_attn.k_scale is nan, a scale is positive"),
        ([(0.1,), (0.1, 0.1)], NEW, "lacks the tensor model.layers.0.self_attn.v_scale"),
        (
            [(0.1, 0.1)],
            NEW,
            "lacks the tensor model.layers.1.self_attn.k_scale, other layers have it",
        ),
    ],
)
def test_faults_are_named(scales, names, text, tmp_path):
    folder = write(tmp_path, scales, names)
    with pytest.raises(StartupError, match=text) as caught:
        load(folder, dtype="float32", **TRITON)
    assert caught.value.field == "model"


def test_a_scale_per_head_is_named(tmp_path):
    several = {"model.layers.0.self_attn.k_scale": torch.ones(2)}
    folder = write(tmp_path, **several)
    with pytest.raises(StartupError, match=r"self_attn.k_scale has shape \[2\]"):
        load(folder, dtype="float32", **TRITON)


@pytest.mark.parametrize(
    ("scheme", "settings", "text"),
    [
        (SCHEME, {}, "made for fp8_e4m3, which needs --attention-backend triton"),
        (SCHEME, {"attention_backend": "sdpa"}, "fp8_e4m3, which needs --attention-backend triton"),
        (
            {**SCHEME, "type": "int"},
            TRITON,
            "made for int of 8 bits with a scale per tensor, which is not kept here",
        ),
    ],
)
def test_a_line_says_why_the_cache_is_another(scheme, settings, text, tmp_path, caplog):
    caplog.set_level("INFO", logger="pagewire_worker")
    one = load(write(tmp_path, scheme=scheme), dtype="float32", **settings)
    (group,) = one.info.cache_groups
    assert group.dtype == "float32"
    [line] = [line for line in caplog.messages if "the KV cache is" in line]
    assert line.startswith("the KV cache is float32: the checkpoint was ")
    assert line.endswith(text)


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        (None, None),
        ("static", FP8_CACHE),
        (SCHEME, FP8_CACHE),
        ({**SCHEME, "dynamic": True}, "float of 8 bits with a scale per tensor as they come"),
        (
            {**SCHEME, "symmetric": False},
            "float of 8 bits with a scale per tensor with zero points",
        ),
        ({**SCHEME, "strategy": "attn_head"}, "float of 8 bits with a scale per attn_head"),
    ],
)
def test_schemes(scheme, expected):
    settings = {"quant_method": "compressed-tensors", "kv_cache_scheme": scheme}
    assert cache_scheme({"quantization_config": settings}) == expected
    assert cache_scheme({}) is None
