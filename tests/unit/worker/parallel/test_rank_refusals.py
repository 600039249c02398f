"""What does not go with ranks is refused by its name, before a process is started."""

import json
from pathlib import Path
from typing import Any

import pytest

from pagewire_shared.errors import StartupError
from pagewire_worker.config import WorkerConfig
from pagewire_worker.loading import ranks
from pagewire_worker.loading.ranks import config_of_ranks, opened_ranks
from pagewire_worker.loading.replica_shape import resolve_shape
from support.checkpoints.checkpoints import make_checkpoint
from support.kernels.fused_kernels import needs_kernels
from support.oracles.family_checkpoints import make_family_checkpoint

STAGES: dict[str, Any] = {"tensor_parallel_size": 1, "pipeline_parallel_size": 2}
SLICES: dict[str, Any] = {"tensor_parallel_size": 1, "sum_slices": 4}
EXPERTS: dict[str, Any] = {"enable_expert_parallel": True}
MTP = json.dumps({"method": "mtp", "num_speculative_tokens": 1})


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
        ({"attention_backend": "triton"}, "--attention-backend triton has no ranks"),
        ({"model_impl": "transformers"}, "models that run through transformers are not divided"),
        ({"tensor_parallel_size": 3}, "num_attention_heads (4) cannot be divided between 3 ranks"),
        ({"pipeline_parallel_size": 17}, "--pipeline-parallel-size must be at most 16, got 17"),
        ({"pipeline_parallel_size": 0}, "--pipeline-parallel-size must be at least 1, got 0"),
        ({"pipeline_parallel_size": 9}, "9 stages of 2 ranks are 18, and at most 16 may be"),
        ({**STAGES, "pipeline_parallel_size": 3}, "3 stages are more than the 2 layers"),
        ({**STAGES, "distributed_executor_backend": "uniproc"}, "--pipeline-parallel-size is 2"),
        ({**STAGES, "model_impl": "transformers"}, "--pipeline-parallel-size: models that run"),
        ({**STAGES, "expert_metrics": True}, "--expert-metrics counts in one process"),
        ({"sum_slices": 3}, "--sum-slices: must be 1 for off, 2, 4, 8 or 16, got 3"),
        ({"sum_slices": 32}, "--sum-slices: must be 1 for off, 2, 4, 8 or 16, got 32"),
        ({**SLICES, "sum_slices": 0}, "--sum-slices: must be 1 for off, 2, 4, 8 or 16, got 0"),
        (
            {"sum_slices": 2, "tensor_parallel_size": 4},
            "--sum-slices: 2 slices cannot be divided between 4 ranks",
        ),
        (
            {**SLICES, "sum_slices": 8},
            "--sum-slices: the inputs of model.layers.0.self_attn.o_proj (64) cannot be cut into 8"
            " slices of a multiple of 16",
        ),
        (
            {**SLICES, "hf_overrides": json.dumps({"intermediate_size": 160})},
            "--sum-slices: the inputs of model.layers.0.mlp.down_proj (160) cannot be cut into 4",
        ),
        ({**SLICES, "enable_lora": True}, "--sum-slices: --enable-lora does not go with slices"),
        ({**SLICES, "model_impl": "transformers"}, "--sum-slices: models that run through"),
        (EXPERTS, "--enable-expert-parallel: the model has no experts"),
        ({**EXPERTS, "tensor_parallel_size": 1}, "--enable-expert-parallel: the model has no exp"),
        ({**STAGES, "speculative_config": MTP}, "method mtp reads hidden states of layers of all"),
    ],
)
def test_settings(qwen: Path, settings: dict[str, Any], message: str) -> None:
    assert message in refusal(qwen, **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"enable_lora": True, **EXPERTS},
        {"enable_lora": True, "rank_hosts": 2, "distributed_executor_backend": "env"},
        {"enable_sleep_mode": True, "rank_hosts": 2, "distributed_executor_backend": "env"},
    ],
)
def test_some_features_go_with_other_ranks_alone(tmp_path: Path, settings: Any) -> None:
    folder = make_family_checkpoint(tmp_path, "qwen3-moe")
    config = WorkerConfig(model=str(folder), device="cpu", tensor_parallel_size=2, **settings)
    with pytest.raises(StartupError, match=r"--enable-[a-z-]* does not go with --"):
        config_of_ranks(config, resolve_shape(config))


def test_blocks_of_stages_with_several_cache_groups_stay(tmp_path: Path) -> None:
    folder = make_family_checkpoint(tmp_path, "gemma3")
    reason = "KV blocks of stages with several cache groups stay in their worker"
    message = refusal(folder, **STAGES, roles=("prefill",))
    assert f"--pipeline-parallel-size: --roles: one alone hands blocks on; {reason}" in message
    config = WorkerConfig(model=str(folder), device="cpu", **STAGES)
    ranked = config_of_ranks(config, resolve_shape(config))
    assert (ranked.kv_offload, ranked.kv_transport) == ("off", "off")


@pytest.mark.parametrize("sizes", [{"tensor_parallel_size": 2}, STAGES])
def test_other_blocks_move(qwen: Path, sizes: dict[str, Any]) -> None:
    config = WorkerConfig(model=str(qwen), device="cpu", roles=("decode",), **sizes)
    ranked = config_of_ranks(config, resolve_shape(config))
    assert (ranked.kv_offload, ranked.kv_transport) == ("writethrough", "auto")


@needs_kernels
def test_kernels_whose_parts_are_too_narrow(qwen: Path) -> None:
    message = refusal(qwen, tensor_parallel_size=4, cpu_backend="fused", hf_overrides=NARROW)
    assert "--cpu-backend: fused does not do here: intermediate_size (10)" in message


NARROW = json.dumps({"intermediate_size": 40})


def test_experts(tmp_path: Path) -> None:
    folder, fields = make_family_checkpoint(tmp_path, "qwen3-moe"), {"num_attention_heads": 16}
    sizes = {**EXPERTS, "tensor_parallel_size": 16}
    overrides = json.dumps({**fields, "num_key_value_heads": 16, "num_experts": 8})
    message = refusal(folder, **sizes, hf_overrides=overrides)
    assert message.startswith("--enable-expert-parallel: num_experts (8) are fewer than the 16")
    slices = {**sizes, "sum_slices": 16}
    inner = {"moe_intermediate_size": 256, "num_key_value_heads": 16}
    wide = json.dumps({**fields, **inner, "num_experts": 1040})
    assert "65 experts with 16 slices each are more than 1024" in refusal(
        folder, **slices, hf_overrides=wide
    )
    long = json.dumps({"hidden_size": 1 << 17})
    message = refusal(folder, **{**EXPERTS, "sum_slices": 16}, hf_overrides=long)
    assert "--enable-expert-parallel: a row of all --sum-slices does not fit" in message


def test_norms_over_all_heads(tmp_path: Path) -> None:
    folder = make_family_checkpoint(tmp_path, "olmo2")
    assert "norms over all heads together are not divided" in refusal(folder)
