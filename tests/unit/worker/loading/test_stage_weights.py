"""A stage reads the tensors of its layers and ends, once each, and refuses those that none has."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from pagewire_shared.errors import StartupError
from pagewire_worker.backend.collectives import RankTopology
from pagewire_worker.checkpoint.weights import SafetensorsReader
from pagewire_worker.config import WorkerConfig
from pagewire_worker.loading.load_settings import load_settings
from pagewire_worker.loading.ranks import rank_source
from pagewire_worker.loading.replica_shape import resolve_shape
from support.checkpoints.checkpoints import make_checkpoint
from support.kernels.fused_kernels import needs_kernels

BACKENDS = ["torch", pytest.param("fused", marks=needs_kernels)]


def load_stage(folder: Path, stage: int, num_stages: int, backend: str) -> None:
    config = WorkerConfig(
        model=str(folder), device="cpu", cpu_backend=backend, cpu_threads=1, dtype="float32"
    )
    shape = resolve_shape(config, is_hashed=False)
    settings = load_settings(config, shape, lambda fraction, detail: None)
    rank_source(shape, RankTopology(0, 1, stage, num_stages)).load(settings)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("is_tied", [False, True])
def test_tensors_of_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, *, is_tied: bool
) -> None:
    settings: dict[str, Any] = {"architecture": "Qwen2ForCausalLM", "layers": 5, "tied": is_tied}
    folder = make_checkpoint(tmp_path / "m", **settings)
    read: list[str] = []
    get = SafetensorsReader._get

    def noted(reader: SafetensorsReader, name: str) -> torch.Tensor:
        read.append(name)
        return get(reader, name)

    monkeypatch.setattr(SafetensorsReader, "_get", noted)
    found = []
    for stage in range(3):
        read.clear()
        load_stage(folder, stage, 3, backend)
        assert len(set(read)) == len(read)
        found.append(set(read))
    first, middle, last = found
    embedding = {"model.embed_tokens.weight"}
    assert first | middle | last == set(load_file(folder / "model.safetensors"))
    assert first & last == (embedding if is_tied else set())
    assert not middle & (first | last)
    assert {name.split(".")[2] for name in middle} == {"2", "3"}
    assert embedding <= first
    assert "model.norm.weight" in last


def test_a_tensor_that_no_layer_has_is_refused(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "m", architecture="Qwen2ForCausalLM", layers=3)
    stored = load_file(folder / "model.safetensors")
    stored["model.layers.1.mlp.side.weight"] = torch.zeros(3)
    save_file(stored, folder / "model.safetensors")
    load_stage(folder, 1, 2, "torch")
    with pytest.raises(StartupError, match=r"architecture does not have: model.layers.1.mlp.side"):
        load_stage(folder, 0, 2, "torch")
