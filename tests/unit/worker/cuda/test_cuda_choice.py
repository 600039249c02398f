"""What a device of CUDA gets by default, as far as that can be told without one."""

import pytest
import torch

from pagewire_shared.errors import StartupError
from pagewire_worker.attention.registry import pick_attention
from pagewire_worker.backend.backend import DecodeBounds
from pagewire_worker.cpu_kernels.library import KernelPool
from pagewire_worker.cpu_kernels.sampler import KernelSampler
from pagewire_worker.cuda import backend as choice
from pagewire_worker.cuda import sampler as kernels
from pagewire_worker.cuda.backend import CudaBackend
from pagewire_worker.loading.native_source import CudaModel
from pagewire_worker.runner.sampler_choice import pick_sampler
from pagewire_worker.sampling import sampler
from pagewire_worker.triton_kernels import availability as triton_choice
from pagewire_worker.triton_kernels.availability import check_triton
from support.cells.worker_driver import PROMPT, Driver, load
from support.kernels.captured_decodes import NoCapture
from support.kernels.fused_kernels import has_kernels

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def compiler(monkeypatch):
    """On CUDA Triton needs one, also where this machine has none."""
    monkeypatch.setenv("CC", "cc")


def test_models_of_our_own_take_the_kernels_on_cuda():
    assert pick_attention("auto", (8, 0)) == "triton"
    assert pick_attention("auto", None) == "auto"
    assert pick_attention("sdpa", (9, 0)) == "sdpa"


def test_older_devices_attend_by_torch_and_that_is_said(caplog):
    assert pick_attention("auto", (7, 5)) == "sdpa"
    assert "compute capability 7.5" in caplog.text


def test_without_triton_torch_attends_and_that_is_said(monkeypatch, caplog):
    monkeypatch.setattr(triton_choice.importlib.util, "find_spec", lambda name: None)
    assert pick_attention("auto", (9, 0)) == "sdpa"
    assert "pagewire[cuda]" in caplog.text


def test_without_a_compiler_torch_attends_and_that_is_said(monkeypatch, caplog, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert pick_attention("auto", (9, 0)) == "sdpa"
    assert "no C compiler" in caplog.text
    with pytest.raises(StartupError, match="attention-backend: triton needs a C compiler"):
        check_triton("--attention-backend: triton", "attention_backend", torch.device("cuda"))
    monkeypatch.setenv("CC", "/usr/bin/cc")
    assert pick_attention("auto", (9, 0)) == "triton"


def test_cpus_sample_by_torch_without_kernels():
    assert pick_sampler(CPU, None, 32, {}) is sampler.sample


@pytest.mark.skipif(not has_kernels(), reason="no kernels run here")
def test_cpus_sample_by_the_kernels_of_their_model():
    assert isinstance(pick_sampler(CPU, None, 32, {"any": KernelPool(1)}), KernelSampler)


def test_devices_with_the_kernels_sample_by_them():
    assert pick_sampler(CPU, (8, 0), 4100, {}) is kernels.sample
    assert pick_sampler(CPU, (7, 5), 4100, {}) is sampler.sample


class _Captured:
    """A model on the kernels, over blocks and limits of a replica that runs by torch."""

    def __init__(self, replica, enforce_eager):
        eager = replica.model_runner.backend
        self.watch = eager._on_layer
        self.model = CudaModel(
            decoder=eager._model,
            attentions=eager._attentions,
            linears=None,
            classifier=None,
            enforce_eager=enforce_eager,
            block_size=16,
        )
        self.bounds = DecodeBounds(3, 64)
        self.num_advances = 0
        self.backend = self.model.captured(eager, self.bounds, self.watch, self.advance)

    def advance(self):
        self.num_advances += 1


@pytest.fixture
def captured(checkpoint, monkeypatch):
    monkeypatch.setattr(choice, "CudaCapture", NoCapture)
    settings = {"attention_backend": "triton", "max_num_seqs": 3, "max_model_len": 64}
    replica = load(checkpoint("llama"), kv_cache_memory=2**20, **settings)
    return replica, lambda enforce_eager: _Captured(replica, enforce_eager)


def test_decodes_of_a_model_are_captured_unless_that_is_not_wanted(captured):
    replica, make = captured
    one = make(enforce_eager=False)
    assert isinstance(one.backend, CudaBackend)
    assert one.num_advances == 3
    assert one.backend._graphs is not None
    assert one.model.graph_bytes(one.bounds) > 3 * choice.BYTES_PER_GRAPH
    plain = make(enforce_eager=True)
    assert (plain.backend._graphs, plain.num_advances) == (None, 0)
    assert plain.model.graph_bytes(plain.bounds) == 0
    expected = Driver.of(replica).generate([PROMPT[:9]], max_tokens=3)
    replica.model_runner.drop_slots()
    replica.model_runner._backend = plain.backend
    assert Driver.of(replica).generate([PROMPT[:9]], max_tokens=3) == expected
