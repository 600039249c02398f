"""When the kernels for CUDA are exact: what has to be asked for, and what is said elsewhere."""

import pytest
import torch

from pagewire_shared.errors import StartupError
from pagewire_worker.attention.registry import make_attention
from pagewire_worker.backend.attention import AttentionKind
from pagewire_worker.layers.linear import pick_linear
from pagewire_worker.triton_kernels import interpreter

CPU = torch.device("cpu")
SMALL = {"max_num_batched_tokens": 8, "max_num_seqs": 2, "max_model_len": 64}
EXACT = {"attention_backend": "triton", "linear_backend": "fixed-tile"}


@pytest.mark.parametrize(
    ("settings", "is_exact"),
    [
        (EXACT, True),
        ({"attention_backend": "triton"}, False),
        ({"linear_backend": "fixed-tile"}, False),
        ({"attention_backend": "sdpa", "linear_backend": "fixed-tile"}, False),
        ({"attention_backend": "reference", "linear_backend": "torch"}, False),
    ],
)
def test_all_parts_have_to_be(settings, is_exact, replica):
    assert replica("llama", **SMALL, **settings).model_runner.backend.is_exact is is_exact


def test_fingerprints_tell_exact_workers_apart(replica):
    prints = {
        replica("llama", **SMALL, **settings).info.numerics_fingerprint
        for settings in (EXACT, {"attention_backend": "triton"}, {"linear_backend": "fixed-tile"})
    }
    assert len(prints) == 3


def test_exact_attention_computes_chunks_in_the_tiles_of_decodes():
    kind = AttentionKind()
    fast = make_attention("triton", CPU, torch.float32, 16, kind)
    exact = make_attention("triton", CPU, torch.float32, 16, kind, exact=True)
    assert (fast.name, fast.is_batch_invariant) == ("triton-free-64", False)
    assert (exact.name, exact.is_batch_invariant) == ("triton-256-64-16", True)


def test_other_attention_cannot_be_made_exact():
    for name in ("reference", "sdpa"):
        attention = make_attention(name, CPU, torch.float32, 16, AttentionKind(), exact=True)
        assert not attention.is_batch_invariant


def test_a_cpu_has_no_fixed_tiles(monkeypatch):
    monkeypatch.setattr(interpreter, "INTERPRETED", False)
    with pytest.raises(StartupError, match="fixed-tile runs on CUDA, the device is cpu") as refusal:
        pick_linear("fixed-tile", CPU, torch.float32)
    assert refusal.value.field == "linear_backend"
