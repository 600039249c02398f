"""What does not go with ranks is refused by its name, before a process is started."""

import json
from pathlib import Path
from typing import Any

import pytest

from pagewire_shared.errors import StartupError
from pagewire_worker.config import WorkerConfig
from pagewire_worker.loading import ranks
from pagewire_worker.loading.ranks import opened_ranks
from pagewire_worker.loading.replica_shape import resolve_shape
from support.checkpoints.checkpoints import make_checkpoint
from support.kernels.fused_kernels import needs_kernels
from support.oracles.family_checkpoints import make_family_checkpoint


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(
        tmp_path_factory.mktemp("refusals") / "m", architecture="Qwen3ForCausalLM"
    )


@pytest.fixture(autouse=True)
def _no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*arguments: object) -> None:
        raise AssertionError("a process would be started")

    monkeypatch.setattr(ranks, "SpawnedRanks", started)


def refusal(folder: Path, **settings: Any) -> str:
    with pytest.raises(StartupError) as caught:
        config = WorkerConfig(
            model=str(folder), device="cpu", **{"tensor_parallel_size": 2, **settings}
        )
        with opened_ranks(config, resolve_shape(config)):
            pass
    return str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tensor_parallel_size": 17}, "--tensor-parallel-size must be at most 16, got 17"),
        ({"tensor_parallel_size": 0}, "--tensor-parallel-size must be at least 1, got 0"),
        ({"distributed_executor_backend": "uniproc"}, "uniproc is one process"),
        ({"enable_lora": True}, "--enable-lora does not go with ranks yet"),
        ({"attention_backend": "triton"}, "--attention-backend triton has no ranks"),
        ({"roles": ("prefill",)}, "--roles: a worker of ranks prefills and decodes"),
        ({"model_impl": "transformers"}, "models that run through transformers are not divided"),
        ({"tensor_parallel_size": 3}, "num_attention_heads (4) cannot be divided between 3 ranks"),
    ],
)
def test_settings(qwen: Path, settings: dict[str, Any], message: str) -> None:
    assert message in refusal(qwen, **settings)


@needs_kernels
def test_kernels_whose_parts_are_too_narrow(qwen: Path) -> None:
    message = refusal(qwen, tensor_parallel_size=4, cpu_backend="fused", hf_overrides=NARROW)
    assert "--cpu-backend: fused does not do here: intermediate_size (10)" in message


NARROW = json.dumps({"intermediate_size": 40})


def test_norms_over_all_heads(tmp_path: Path) -> None:
    folder = make_family_checkpoint(tmp_path, "olmo2")
    assert "norms over all heads together are not divided" in refusal(folder)
