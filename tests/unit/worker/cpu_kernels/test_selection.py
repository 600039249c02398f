"""When the kernels run a model, and what is said where they do not."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pagewire_shared.errors import StartupError
from pagewire_worker.backend.source import LoadSettings
from pagewire_worker.config import CPU_ISAS
from pagewire_worker.cpu_kernels import build, library
from pagewire_worker.cpu_kernels import isa_selection as isa_choice
from pagewire_worker.cpu_kernels import selection as choice
from pagewire_worker.cpu_kernels.isa_selection import (
    Speeds,
    choose_instruction_set,
    fastest,
    measure,
)
from pagewire_worker.cpu_kernels.library import (
    EMULATED,
    KernelPool,
    KernelsMissingError,
    instruction_sets,
    load_library,
)
from pagewire_worker.cpu_kernels.selection import MEASURED_LOSS, choose_kernels
from pagewire_worker.families.plan import ModelPlan
from pagewire_worker.models.registry import native_plan
from support.cells.worker_driver import load
from support.kernels.fused_kernels import has_kernels, needs_kernels


def model(**fields: Any) -> ModelPlan:
    """Return the plan of a small Llama with other fields in its config.json."""
    return native_plan(
        {
            "architectures": ["LlamaForCausalLM"],
            "vocab_size": 512,
            "hidden_size": 64,
            "intermediate_size": 192,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            **fields,
        }
    )


MODEL = model()

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
]


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="pagewire_worker.cpu_kernels")
    return caplog


@needs_kernels
@pytest.mark.parametrize("wanted", ["auto", "fused"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_they_run_what_they_can(
    wanted: str, dtype: torch.dtype, logged: pytest.LogCaptureFixture
) -> None:
    largest = model(head_dim=512, num_attention_heads=128)
    for plan in (MODEL, largest):
        pool = choose_kernels(plan, replace(SETTINGS, cpu_backend=wanted, dtype=dtype))
        assert isinstance(pool, KernelPool)
    assert len(logged.messages) == 2
    assert all(line.startswith("the kernels for CPUs use ") for line in logged.messages)
    assert not any(EMULATED in line for line in logged.messages)


@needs_kernels
@pytest.mark.parametrize("name", CPU_ISAS[1:])
def test_an_instruction_set_may_be_pinned(
    name: str, logged: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "choose_instruction_set", None)
    settings = replace(SETTINGS, cpu_isa=name)
    if name in instruction_sets():
        pool = choose_kernels(MODEL, settings)
        assert pool is not None
        assert pool.instruction_set == name
        assert f"the kernels for CPUs use {name}: --cpu-isa says so" in logged.messages
        return
    with pytest.raises(StartupError, match=f"--cpu-isa: {name} does not run here") as caught:
        choose_kernels(MODEL, settings)
    assert caught.value.field == "cpu_isa"


@pytest.mark.parametrize(
    ("speeds", "expected"),
    [
        ({"b": Speeds(1.22, 1.0), "c": Speeds(0.8, 0.8)}, "b"),
        ({"b": Speeds(1.05, 1.3), "c": Speeds(0.8, 0.8)}, "a"),
        ({"b": Speeds(1.5, 0.8), "c": Speeds(1.2, 1.0)}, "c"),
        ({"b": Speeds(1.2, 1.0), "c": Speeds(1.3, 1.0)}, "c"),
        ({}, "a"),
    ],
)
def test_only_what_is_clearly_faster_takes_the_place_of_the_first(
    speeds: dict[str, Speeds], expected: str
) -> None:
    assert fastest(["a", "b", "c"], speeds) == expected


@needs_kernels
@pytest.mark.parametrize("kind", ["none", "int8", "int4"])
def test_what_is_measured_is_kept_and_names_a_set_that_runs(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = list(instruction_sets())
    if len(names) == 1:
        pytest.skip("there is nothing to choose from")
    first, how = choose_instruction_set(torch.bfloat16, kind, tmp_path)
    assert first in names
    assert how.endswith("as measured now")
    monkeypatch.setattr(isa_choice, "measure", None)
    assert choose_instruction_set(torch.bfloat16, kind, tmp_path) == (
        first,
        "measured at an earlier start",
    )


@needs_kernels
def test_the_choice_is_part_of_what_tells_blocks_apart(checkpoint: Any) -> None:
    """Two sets round differently: their workers must not share blocks. AMX and its emulation do."""
    names = list(instruction_sets())
    replicas = [load(checkpoint("llama"), cpu_isa=name, dtype="bfloat16") for name in names]
    found = {one.info.numerics_fingerprint for one in replicas}
    assert len(found) == len(names) - ({"amx", EMULATED} <= set(names))


@needs_kernels
def test_sets_that_are_equally_fast_leave_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the clock says of single products, it is ratios side by side that count."""
    names = [name for name in instruction_sets() if name != EMULATED]
    noise = iter(range(1, 10**6))
    monkeypatch.setattr(isa_choice._Product, "seconds", lambda *_: 1.0 + next(noise) % 7 / 200)
    assert fastest(names, measure(names, torch.bfloat16, 1)) == names[0]


def test_what_is_said_without_kernels(
    logged: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "instruction_sets", _no_kernels)
    choose_kernels(MODEL, SETTINGS)
    (line,) = logged.messages
    assert MEASURED_LOSS in line


def _no_kernels() -> dict[str, int]:
    raise KernelsMissingError("none here")


@pytest.mark.parametrize(("fields", "settings", "reason"), REASONS)
def test_what_they_do_not_run(
    fields: dict[str, Any],
    settings: dict[str, Any],
    reason: str,
    logged: pytest.LogCaptureFixture,
) -> None:
    plan, given = model(**fields), replace(SETTINGS, **settings)
    assert choose_kernels(plan, given) is None
    (record,) = logged.records
    assert record.levelno == logging.INFO
    assert reason in record.message
    with pytest.raises(StartupError, match=r"^--cpu-backend: fused ") as caught:
        choose_kernels(plan, replace(given, cpu_backend="fused"))
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
    elif kind == "riscv64":
        monkeypatch.setattr(library.platform, "machine", lambda: "riscv64")
    else:
        monkeypatch.setattr(library, "load_library", OldProcessor)


class OldProcessor:
    """A library none of whose instruction sets runs."""

    def pw_isa_name(self, number: int) -> bytes | None:
        return [b"avx512", b"avx2", None][number]

    def pw_isa_runs(self, number: int) -> int:
        return 0


@pytest.fixture(params=["missing", "unloadable", "stale", "riscv64", "old"])
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
    "riscv64": "none for riscv64",
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
    for part in ("Debian: g++", "python -m pagewire_worker.cpu_kernels.build"):
        assert (part in record.message) is can_be_compiled
    with pytest.raises(StartupError, match=SAID[broken]):
        choose_kernels(MODEL, replace(SETTINGS, cpu_backend="fused"))


def test_without_kernels_torch_computes(broken: str, checkpoint: Any) -> None:
    replica = load(checkpoint("llama"), cpu_backend="auto", max_num_batched_tokens=64)
    assert replica.model_runner.backend.kernel_set.startswith("torch,"), broken


@needs_kernels
def test_an_instruction_set_that_is_not_there_is_named() -> None:
    with pytest.raises(KernelsMissingError, match="avx1024 does not run here"):
        KernelPool(1, "avx1024")
