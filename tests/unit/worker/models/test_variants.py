"""The table of decoders is complete, and no model is computed by the decoder of another one."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from unit.worker.cpu_kernels.test_selection import MODEL, SETTINGS

from pagewire_shared.errors import StartupError
from pagewire_worker import config as worker_config
from pagewire_worker.attention import registry as attentions
from pagewire_worker.attention.reference import ReferenceAttention
from pagewire_worker.cuda import backend as cuda_backend
from pagewire_worker.cuda.backend import CudaBackend
from pagewire_worker.cuda.triton_decoder import TritonDecoder, load_triton_decoder
from pagewire_worker.families.fields import UnsupportedModelError
from pagewire_worker.families.registry import FAMILIES
from pagewire_worker.layers import linear
from pagewire_worker.loading import native_source
from pagewire_worker.loading.native_source import DECODERS, NativeSource
from pagewire_worker.models import variants
from pagewire_worker.models.decoder import Decoder, load_decoder
from pagewire_worker.models.linear_choice import LINEARS
from pagewire_worker.models.variants import FUSED, VARIANTS, Variant, find_variant
from support.cells.worker_driver import PROMPT, Driver, load
from support.kernels.captured_decodes import NoCapture
from support.kernels.fused_kernels import needs_kernels

PRETEND = "PretendForCausalLM"
TORCH_ROW = Variant(
    decoder="pretend",
    architectures=(PRETEND,),
    devices=("cpu", "cuda"),
    attention=("reference", "sdpa"),
    linears={"none": variants.BY_FLAG},
)
CAPTURED_ROW = replace(TORCH_ROW, attention=("triton",), graphs=("cpu", "cuda"))
REFUSED = f"has no decoder for {PRETEND}"


def test_the_table_covers_what_can_be_asked_for():
    assert {name for row in VARIANTS for name in row.architectures} == set(FAMILIES)
    assert {name for row in VARIANTS for name in row.devices} == {*worker_config.DEVICES} - {"auto"}
    quantizations = {name for row in VARIANTS for name in row.linears}
    assert quantizations == set(worker_config.QUANTIZATIONS)
    named = {name for row in VARIANTS for name in row.attention} - {FUSED}
    assert named == set(attentions.FACTORIES) == {*worker_config.ATTENTION_BACKENDS} - {"auto"}
    assert set(linear.FACTORIES) == {*worker_config.LINEAR_BACKENDS} - {"auto"}


def test_what_the_table_names_exists():
    assert {row.decoder for row in VARIANTS} - {FUSED} == set(DECODERS)
    assert {name for row in VARIANTS for name in row.linears.values()} - {FUSED} == set(LINEARS)
    assert all(set(row.graphs) <= set(row.devices) for row in VARIANTS)


def test_a_combination_has_one_row_at_most():
    cells = [
        (architecture, device, attention, quantization)
        for row in VARIANTS
        for architecture in row.architectures
        for device in row.devices
        for attention in row.attention
        for quantization in row.linears
    ]
    assert len(set(cells)) == len(cells)


@pytest.mark.parametrize(
    ("changed", "field", "text"),
    [
        ({"attention": "flash"}, "attention_backend", "flash has no decoder for LlamaForCausalLM"),
        ({"device": "tpu"}, "device", "tpu has no decoder for LlamaForCausalLM with sdpa"),
        ({"quantization": "int8"}, "quantization", "int8 has no decoder for LlamaForCausalLM"),
        ({"architecture": PRETEND}, "model", f"{PRETEND} has no native decoder"),
    ],
)
def test_a_combination_without_a_row_is_refused_by_name(changed, field, text):
    wanted = {
        "architecture": "LlamaForCausalLM",
        "device": "cuda",
        "attention": "sdpa",
        "quantization": "none",
    }
    with pytest.raises(StartupError, match=text) as refusal:
        find_variant(**{**wanted, **changed})
    assert refusal.value.field == field
    assert isinstance(refusal.value, UnsupportedModelError) is (field == "model")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_another_attention_backend_is_not_run_by_a_decoder_made_for_others(device, monkeypatch):
    def flash(device, dtype, block_size, kind, exact):
        return ReferenceAttention(kind)

    monkeypatch.setitem(attentions.FACTORIES, "flash", flash)
    monkeypatch.setattr(native_source, "device_capability", lambda device: (9, 0))
    settings = replace(SETTINGS, attention_backend="flash", device=torch.device(device))
    with pytest.raises(
        StartupError, match=r"^--attention-backend: flash has no decoder"
    ) as refusal:
        NativeSource(None, MODEL).load(settings)
    assert refusal.value.field == "attention_backend"


class Pretend:
    """An architecture that is read like Llama and has one decoder, which a table row names."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        self.built = []
        self._patch = monkeypatch
        monkeypatch.setitem(FAMILIES, PRETEND, FAMILIES["LlamaForCausalLM"])

    def has(self, row, build):
        def recorded(*arguments):
            self.built.append(build(*arguments))
            return self.built[-1]

        self._patch.setattr(variants, "VARIANTS", (*VARIANTS, row))
        self._patch.setitem(DECODERS, "pretend", recorded)

    def load(self, **settings):
        return load(self.folder, **settings)

    def refused(self, **settings):
        with pytest.raises(StartupError) as refusal:
            self.load(**settings)
        assert self.built == []
        assert PRETEND in refusal.value.message
        return refusal.value


@pytest.fixture
def pretend(checkpoint, tmp_path, monkeypatch):
    folder = tmp_path / "pretend"
    shutil.copytree(checkpoint("llama"), folder)
    path = folder / "config.json"
    content = {**json.loads(path.read_text()), "architectures": [PRETEND]}
    path.unlink()
    path.write_text(json.dumps(content))
    return Pretend(folder, monkeypatch)


def test_an_architecture_without_a_row_is_refused_on_every_path(pretend):
    for settings in ({"cpu_backend": "torch"}, {"attention_backend": "triton"}, {}):
        assert pretend.refused(**settings).field == "model"
    assert pretend.refused(cpu_backend="fused").field == "cpu_backend"


@pytest.mark.parametrize("cpu_backend", ["auto", "torch"])
def test_torch_computes_by_the_builder_of_the_architecture(pretend, cpu_backend, caplog):
    caplog.set_level("INFO", logger="pagewire_worker")
    pretend.has(TORCH_ROW, load_decoder)
    replica = pretend.load(cpu_backend=cpu_backend)
    (decoder,) = pretend.built
    assert replica.model_runner.backend._model is decoder
    said = f"not the kernels for CPUs: they have no decoder for {PRETEND}" in caplog.text
    assert said is (cpu_backend == "auto")


@needs_kernels
def test_the_kernels_for_cpus_compute_no_other_architecture(pretend):
    pretend.has(TORCH_ROW, load_decoder)
    error = pretend.refused(cpu_backend="fused")
    assert error.message.startswith("--cpu-backend: fused does not do here: they have no decoder")
    for quantization in ("int8", "int4", "fp8"):
        error = pretend.refused(quantization=quantization)
        assert error.message.startswith(f"--quantization: {quantization} {REFUSED}")


def test_the_kernels_for_cuda_compute_no_other_architecture(pretend):
    pretend.has(TORCH_ROW, load_decoder)
    error = pretend.refused(attention_backend="triton")
    assert error.message == f"--attention-backend: triton {REFUSED}"


def test_on_cuda_the_default_is_attention_that_the_architecture_has(pretend, monkeypatch, caplog):
    caplog.set_level("INFO", logger="pagewire_worker")
    monkeypatch.setenv("CC", "cc")
    monkeypatch.setattr(native_source, "device_capability", lambda device: (9, 0))
    pretend.has(TORCH_ROW, load_decoder)
    backend = pretend.load(cpu_backend="torch").model_runner.backend
    assert isinstance(backend._model, Decoder)
    assert "attention=sdpa" in backend.kernel_set
    assert f"{PRETEND} attends by sdpa: no decoder of it takes triton" in caplog.text


@pytest.mark.usefixtures("poisoned_kernels")
def test_a_captured_decode_runs_the_decoder_of_the_architecture(pretend, checkpoint, monkeypatch):
    monkeypatch.setattr(cuda_backend, "CudaCapture", NoCapture)

    def build(plan, weights, linears, num_positions, device):
        decoder = load_triton_decoder(plan, weights, linears, num_positions)
        decoder.__class__ = Counted
        return decoder

    sizes = []

    class Counted(TritonDecoder):
        def forward(self, batch, *rest):
            sizes.append(len(batch.token_ids))
            return super().forward(batch, *rest)

    pretend.has(CAPTURED_ROW, build)
    limits = {"attention_backend": "triton", "max_num_seqs": 2, "max_model_len": 64}
    replica = pretend.load(kv_cache_memory=2**20, **limits)
    assert isinstance(replica.model_runner.backend, CudaBackend)
    assert replica.model_runner.backend._graphs._model is pretend.built[0]
    sizes.clear()
    tokens = Driver.of(replica).generate([PROMPT[:9]], max_tokens=3)
    assert sizes
    plain = load(checkpoint("llama"), kv_cache_memory=2**20, **limits)
    assert Driver.of(plain).generate([PROMPT[:9]], max_tokens=3) == tokens


def test_attention_that_cannot_be_captured_is_refused_by_name(pretend):
    pretend.has(replace(TORCH_ROW, graphs=("cpu",)), load_decoder)
    with pytest.raises(StartupError, match=r"^--attention-backend: sdpa cannot be captured"):
        pretend.load(attention_backend="sdpa")
    replica = pretend.load(attention_backend="sdpa", enforce_eager=True)
    assert isinstance(replica.model_runner.backend, CudaBackend)
