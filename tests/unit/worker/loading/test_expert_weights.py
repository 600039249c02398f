"""A rank with whole experts reads the tensors of its experts, and of none of the others."""

import re
from pathlib import Path

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
from support.kernels.fused_kernels import needs_kernels
from support.oracles.family_checkpoints import make_family_checkpoint

BACKENDS = ["torch", pytest.param("fused", marks=needs_kernels)]
EXPERT = re.compile(r".*\.experts\.(\d+)\..*")


def load_rank(folder: Path, rank: int, size: int, backend: str) -> None:
    config = WorkerConfig(
        model=str(folder), device="cpu", cpu_backend=backend, cpu_threads=1, dtype="float32"
    )
    shape = resolve_shape(config, is_hashed=False)
    settings = load_settings(config, shape, lambda fraction, detail: None)
    topology = RankTopology(rank, size, has_whole_experts=True)
    rank_source(shape, topology).load(settings)


@pytest.mark.parametrize("backend", BACKENDS)
def test_tensors_of_experts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    folder = make_family_checkpoint(tmp_path, "qwen2-moe")
    read: list[str] = []
    get = SafetensorsReader._get

    def noted(reader: SafetensorsReader, name: str) -> torch.Tensor:
        read.append(name)
        return get(reader, name)

    monkeypatch.setattr(SafetensorsReader, "_get", noted)
    found = []
    for rank in range(2):
        read.clear()
        load_rank(folder, rank, 2, backend)
        assert len(set(read)) == len(read)
        found.append(set(read))
    assert found[0] | found[1] == set(load_file(folder / "model.safetensors"))
    numbers = [
        {int(match[1]) for name in names if (match := EXPERT.fullmatch(name))} for names in found
    ]
    assert numbers == [{0, 1, 2, 3}, {4, 5, 6, 7, 8}]
    both = {name for name in found[0] & found[1] if "experts." in name}
    assert both == set(), "no tensor of an expert is read twice"


def test_a_tensor_that_no_expert_has_is_refused(tmp_path: Path) -> None:
    folder = make_family_checkpoint(tmp_path, "qwen2-moe")
    path = folder / "model.safetensors"
    stored = load_file(path)
    stored["model.layers.0.mlp.experts.7.side.weight"] = torch.zeros(3)
    save_file(stored, path, metadata={"format": "pt"})
    with pytest.raises(StartupError, match=r"does not have: model.layers.0.mlp.experts.7.side"):
        load_rank(folder, 0, 2, "torch")
