"""When the kernels run a model, and what is said where they do not."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pagewire_shared.errors import StartupError
from pagewire_worker.fused import build, library
from pagewire_worker.fused.choice import MEASURED_LOSS, choose_kernels
from pagewire_worker.fused.library import KernelPool, KernelsMissingError, load_library
from pagewire_worker.models.config import ModelConfig, RopeConfig
from pagewire_worker.models.source import LoadSettings
from support.fused_kernels import has_kernels, needs_kernels
from support.worker_driver import load

MODEL = ModelConfig(
    architecture="LlamaForCausalLM",
    vocab_size=512,
    hidden_size=64,
    intermediate_size=192,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    rms_norm_eps=1e-6,
    rope=RopeConfig(),
    max_position_embeddings=2048,
    is_tied=False,
    has_qkv_bias=False,
    has_output_bias=False,
    has_mlp_bias=False,
    has_qk_norm=False,
    sliding_window=None,
    dtype="float32",
)

SETTINGS = LoadSettings(
    device=torch.device("cpu"),
    dtype=torch.bfloat16,
    max_model_len=128,
    block_size=16,
    attention_backend="auto",
    linear_backend="auto",
    cpu_backend="auto",
    on_progress=lambda fraction: None,
)

# What does not do, as fields of the model and of the settings, and what is said of it.
REASONS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"attention_backend": "sdpa"}, "--attention-backend sdpa"),
    ({}, {"linear_backend": "torch"}, "--linear-backend torch"),
    ({}, {"dtype": torch.float16}, "float16"),
    ({}, {"block_size": 8}, "--block-size (8)"),
    ({}, {"block_size": 24}, "--block-size (24)"),
    ({"hidden_size": 72}, {}, "hidden_size (72)"),
    ({"intermediate_size": 200}, {}, "intermediate_size (200)"),
    ({"head_dim": 24}, {}, "head_dim (24)"),
    ({"head_dim": 528}, {}, "head_dim (528)"),
    ({"num_heads": 130}, {}, "query heads per KV head (65)"),
]


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="pagewire_worker.fused")
    return caplog


@needs_kernels
@pytest.mark.parametrize("wanted", ["auto", "fused"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_they_run_what_they_can(
    wanted: str, dtype: torch.dtype, logged: pytest.LogCaptureFixture
) -> None:
    largest = replace(MODEL, head_dim=512, num_heads=128)
    for model in (MODEL, largest):
        pool = choose_kernels(model, replace(SETTINGS, cpu_backend=wanted, dtype=dtype))
        assert isinstance(pool, KernelPool)
    assert logged.messages == []


@pytest.mark.parametrize(("model", "settings", "reason"), REASONS)
def test_what_they_do_not_run(
    model: dict[str, Any],
    settings: dict[str, Any],
    reason: str,
    logged: pytest.LogCaptureFixture,
) -> None:
    config, given = replace(MODEL, **model), replace(SETTINGS, **settings)
    assert choose_kernels(config, given) is None
    (record,) = logged.records
    assert record.levelno == logging.INFO
    assert reason in record.message
    with pytest.raises(StartupError, match=r"^--cpu-backend: fused ") as caught:
        choose_kernels(config, replace(given, cpu_backend="fused"))
    assert reason in caught.value.message
    assert caught.value.field == "cpu_backend"
    assert len(logged.records) == 1


def test_a_gpu_is_no_cpu(logged: pytest.LogCaptureFixture) -> None:
    settings = replace(SETTINGS, device=torch.device("cuda"))
    assert choose_kernels(MODEL, settings) is None
    with pytest.raises(StartupError, match="the device is cuda"):
        choose_kernels(MODEL, replace(settings, cpu_backend="fused"))
    assert logged.messages == []


def test_torch_where_it_is_asked_for(logged: pytest.LogCaptureFixture) -> None:
    assert choose_kernels(MODEL, replace(SETTINGS, cpu_backend="torch")) is None
    assert logged.messages == []


def break_library(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the kernels of this installation unusable."""
    if kind == "missing":
        monkeypatch.setattr(build, "LIBRARY", folder / "none.so")
    elif kind == "unloadable":
        (folder / "broken.so").write_bytes(b"\x7fELF of another machine")
        monkeypatch.setattr(build, "LIBRARY", folder / "broken.so")
    elif kind == "stale":
        monkeypatch.setattr(build, "source_hash", lambda: "0" * 16)
    elif kind == "arm64":
        monkeypatch.setattr(library.platform, "machine", lambda: "aarch64")
    else:
        monkeypatch.setattr(library, "load_library", OldProcessor)


class OldProcessor:
    """A library none of whose instruction sets runs."""

    def pw_isa_name(self, number: int) -> bytes | None:
        return [b"avx512", b"avx2", None][number]

    def pw_isa_runs(self, number: int) -> int:
        return 0


@pytest.fixture(params=["missing", "unloadable", "stale", "arm64", "old"])
def broken(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """How the kernels are unusable in this test."""
    if request.param == "stale" and not has_kernels():
        pytest.skip("no kernels were compiled here")
    load_library.cache_clear()
    break_library(request.param, tmp_path, monkeypatch)
    yield str(request.param)
    load_library.cache_clear()


SAID = {
    "missing": "were not compiled when Pagewire was installed",
    "unloadable": "cannot be loaded",
    "stale": "of other sources",
    "arm64": "none for aarch64",
    "old": "no AVX2",
}


def test_without_kernels_one_line_says_what_it_costs_and_how_to_get_them(
    broken: str, logged: pytest.LogCaptureFixture
) -> None:
    assert choose_kernels(MODEL, SETTINGS) is None
    (record,) = logged.records
    assert record.levelno == logging.WARNING
    assert SAID[broken] in record.message
    assert MEASURED_LOSS in record.message
    assert "\n" not in record.message
    # No compiler helps where there is nothing to compile, or nothing that runs.
    can_be_compiled = broken in ("missing", "unloadable", "stale")
    for part in ("Debian: g++", "python -m pagewire_worker.fused.build"):
        assert (part in record.message) is can_be_compiled
    with pytest.raises(StartupError, match=SAID[broken]):
        choose_kernels(MODEL, replace(SETTINGS, cpu_backend="fused"))


def test_without_kernels_torch_computes(broken: str, checkpoint: Any) -> None:
    replica = load(checkpoint("llama"), cpu_backend="auto", max_num_batched_tokens=64)
    assert replica.executor._backend.kernel_set.startswith("torch,"), broken


@needs_kernels
def test_an_instruction_set_that_is_not_there_is_named() -> None:
    with pytest.raises(KernelsMissingError, match="avx1024 does not run here"):
        KernelPool(1, "avx1024")
