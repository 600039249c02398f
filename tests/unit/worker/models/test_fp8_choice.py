"""Where 8-bit floats are refused, for weights and for the cache, and what is said there."""

from dataclasses import replace

import pytest
import torch
from unit.worker.cpu_kernels.test_selection import MODEL, SETTINGS, model

from pagewire_shared.errors import StartupError
from pagewire_worker.attention.registry import make_attention
from pagewire_worker.backend.attention import AttentionKind
from pagewire_worker.checkpoint.dtypes import FP8
from pagewire_worker.config import WorkerConfig
from pagewire_worker.cpu_kernels.selection import choose_kernels
from pagewire_worker.layers.fp8 import check_fp8_cache
from pagewire_worker.layers.linear import TorchLinear
from pagewire_worker.loading.loader import load_replica
from pagewire_worker.models.linear_choice import choose_linears
from pagewire_worker.triton_kernels import interpreter

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
HOPPER = (9, 0)
FP8_WEIGHTS = replace(SETTINGS, device=CUDA, quantization="fp8")


@pytest.fixture(autouse=True)
def compiler(monkeypatch):
    """On CUDA Triton needs one, also where this machine has none."""
    monkeypatch.setenv("CC", "cc")


@pytest.mark.parametrize("capability", [(8, 9), HOPPER, (10, 0), (12, 0)])
def test_devices_that_have_them(capability):
    linears = choose_linears("fp8", MODEL, FP8_WEIGHTS, capability)
    assert (linears.name, linears.is_batch_invariant) == ("fp8", False)
    assert linears.output is TorchLinear
    check_fp8_cache(CUDA, capability, attention("triton"))


@pytest.mark.parametrize(
    ("capability", "text"), [((7, 5), "7.5"), ((8, 0), "8.0"), ((8, 6), "8.6")]
)
def test_older_devices(capability, text):
    said = f"needs a device of compute capability 8.9, this one has {text}"
    with pytest.raises(StartupError, match=f"^--quantization: fp8 {said}") as refusal:
        choose_linears("fp8", MODEL, FP8_WEIGHTS, capability)
    assert refusal.value.field == "quantization"
    with pytest.raises(StartupError, match=f"^--kv-cache-dtype: fp8_e4m3 {said}") as refusal:
        check_fp8_cache(CUDA, capability, attention("triton"))
    assert refusal.value.field == "kv_cache_dtype"


def attention(name):
    return make_attention(name, CPU, torch.float32, 16, AttentionKind())


@pytest.mark.parametrize(
    ("fields", "settings", "reason"),
    [
        ({}, {"dtype": torch.float32}, "the model computes in float32; give it --dtype bfloat16"),
        ({}, {"linear_backend": "fixed-tile"}, "--linear-backend fixed-tile"),
        ({}, {"linear_backend": "packed"}, "--linear-backend packed"),
        ({"hidden_size": 72}, {}, r"hidden_size \(72\) is no multiple of 16"),
        ({"intermediate_size": 200}, {}, r"intermediate_size \(200\)"),
        ({"head_dim": 10}, {}, r"num_attention_heads \* head_dim \(40\)"),
        (
            {"head_dim": 20, "num_attention_heads": 8, "num_key_value_heads": 1},
            {},
            r"head_dim \(200\)",
        ),
    ],
)
def test_what_they_do_not_compute(fields, settings, reason):
    plan, given = model(**fields), replace(FP8_WEIGHTS, **settings)
    with pytest.raises(StartupError, match=f"^--quantization: fp8 .*{reason}") as refusal:
        choose_linears("fp8", plan, given, HOPPER)
    assert refusal.value.field == "quantization"


def test_torch_may_be_asked_for():
    given = replace(FP8_WEIGHTS, linear_backend="torch")
    assert choose_linears("fp8", MODEL, given, HOPPER).name == "fp8"


@pytest.mark.parametrize("name", ["reference", "sdpa"])
def test_attention_that_reads_no_such_cache(name):
    with pytest.raises(StartupError, match=f"--attention-backend triton, this is {name}"):
        check_fp8_cache(CUDA, HOPPER, attention(name))


@pytest.fixture
def compiled(monkeypatch):
    """As without Triton's interpreter."""
    monkeypatch.setattr(interpreter, "INTERPRETED", False)


def refusal_of(folder, **settings):
    with pytest.raises(StartupError) as refusal:
        load_replica(WorkerConfig(model=str(folder), max_model_len=64, **settings))
    return refusal.value.message


@pytest.mark.parametrize("cpu_backend", ["auto", "torch"])
def test_a_cpu_is_told_what_it_has(compiled, checkpoint, cpu_backend):
    said = refusal_of(checkpoint("llama"), quantization="fp8", cpu_backend=cpu_backend)
    assert said == ("--quantization: fp8 runs on CUDA, the device is cpu; CPUs have int8 and int4")


@pytest.mark.parametrize("cpu_backend", ["auto", "torch"])
def test_a_cpu_has_no_such_cache(compiled, checkpoint, cpu_backend):
    said = refusal_of(checkpoint("llama"), kv_cache_dtype="fp8_e4m3", cpu_backend=cpu_backend)
    assert said == "--kv-cache-dtype: fp8_e4m3 runs on CUDA, the device is cpu"


def test_the_kernels_for_cpus_refuse_both(checkpoint):
    folder = checkpoint("llama")
    said = refusal_of(folder, cpu_backend="fused", quantization="fp8")
    assert said.startswith("--cpu-backend: fused does not do here: --quantization fp8")
    said = refusal_of(folder, cpu_backend="fused", kv_cache_dtype="fp8_e4m3")
    assert said.startswith("--cpu-backend: fused does not do here: --kv-cache-dtype")
    said = refusal_of(folder, quantization="int8", kv_cache_dtype="fp8_e4m3")
    assert said.startswith("--quantization: int8 needs the kernels for CPUs: --kv-cache-dtype")


def test_int4_still_needs_the_kernels_for_cpus():
    with pytest.raises(StartupError, match="int4 needs the kernels for CPUs: the device is cuda"):
        choose_kernels(MODEL, replace(SETTINGS, device=CUDA, quantization="int4"))
    assert choose_kernels(MODEL, replace(SETTINGS, device=CUDA, quantization="int8")) is None
    assert choose_kernels(MODEL, FP8_WEIGHTS) is None
    assert choose_kernels(MODEL, replace(SETTINGS, cache_dtype=FP8)) is None


def test_models_through_transformers_take_neither(gpt2):
    for settings in ({"quantization": "fp8"}, {"kv_cache_dtype": "fp8_e4m3"}):
        said = refusal_of(gpt2, attention_backend="triton", **settings)
        assert "is for models of our own decoder" in said
        assert f"--{next(iter(settings)).replace('_', '-')}: fp8" in said
