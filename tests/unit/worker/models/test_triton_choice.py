"""Where the attention of Triton is refused, and why."""

import sys

import pytest
import torch

from pagewire_shared.errors import StartupError
from pagewire_worker.attention.registry import make_attention
from pagewire_worker.backend.attention import AttentionKind
from pagewire_worker.triton_kernels import interpreter


def make():
    return make_attention("triton", torch.device("cpu"), torch.float32, 16, AttentionKind())


def test_its_name_says_how_positions_are_cut():
    assert make().name == "triton-free-64"


def test_a_cpu_does_not_run_it(monkeypatch):
    monkeypatch.setattr(interpreter, "INTERPRETED", False)
    with pytest.raises(StartupError, match="triton runs on CUDA, the device is cpu") as refusal:
        make()
    assert refusal.value.field == "attention_backend"


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "pagewire_worker.attention.triton", raising=False)
    for name in [name for name in sys.modules if name.startswith("pagewire_worker.triton_kernels")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(StartupError, match=r"pip install 'pagewire\[cuda\]'"):
        make()
