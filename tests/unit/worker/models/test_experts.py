"""Mixtures of experts: the kernels for CPUs against torch where small random models do not reach,
and the fields of config.json that are refused."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_worker.families.plan import LinearSpec, RouterSpec
from pagewire_worker.link.expert_metrics import EXPERTS
from pagewire_worker.models.experts import route
from pagewire_worker.models.registry import native_plan
from support.cells.worker_driver import Driver, load
from support.checkpoints.fallback_checkpoints import VOCAB
from support.kernels.fused_kernels import needs_kernels
from support.oracles.family_checkpoints import MAX_POSITIONS, make_family_checkpoint

TINY: dict[str, Any] = {"max_num_batched_tokens": 8, "max_num_seqs": 2, "max_model_len": 16}

CONFIG: dict[str, Any] = {
    "architectures": ["Glm4MoeForCausalLM"],
    **{"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 512},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "moe_intermediate_size": 48},
    **{"n_routed_experts": 12, "num_experts_per_tok": 5, "n_group": 4, "topk_group": 2},
}


def states_of(folder: Path, prompts: list[list[int]], budget: int, **settings: Any) -> list[Tensor]:
    """Return the logits behind each prompt; all run together."""
    replica = load(folder, max_model_len=MAX_POSITIONS, model_impl="native", **settings)
    driver = Driver.of(replica)
    backend: Any = driver.model_runner.backend
    states: list[Tensor] = []
    forward = backend.forward

    def recorded(batch: Any) -> Tensor:
        states.append(forward(batch).clone())
        return states[-1]

    backend.forward = recorded
    driver.generate(prompts, max_tokens=1, budget=budget)
    return [backend.logits(one) for one in states if len(one)]


def changed_checkpoint(folder: Path, name: str, change: Any) -> Path:
    """Write a family's checkpoint with the weights of its routers changed in place."""
    made = make_family_checkpoint(folder, name)
    (file,) = made.glob("*.safetensors")
    tensors = load_file(file)
    for key, tensor in tensors.items():
        if key.endswith("mlp.gate.weight"):
            change(tensor)
    save_file(tensors, file, metadata={"format": "pt"})
    return made


@needs_kernels
@torch.inference_mode()
def test_of_equal_scores_the_first_experts_are_taken(tmp_path: Path) -> None:
    folder = changed_checkpoint(tmp_path, "qwen3-moe", lambda tensor: tensor.zero_())
    prompts = [[7, 9, 11, 40]]
    fused, plain = (
        states_of(folder, prompts, 64, cpu_backend=one)[-1] for one in ("fused", "torch")
    )
    torch.testing.assert_close(fused, plain, atol=1e-4, rtol=1e-4)


@needs_kernels
@torch.inference_mode()
@pytest.mark.parametrize("backend", ["fused", "torch"])
def test_a_router_of_nan_gives_nan_and_no_crash(tmp_path: Path, backend: str) -> None:
    folder = changed_checkpoint(tmp_path, "qwen3-moe", lambda tensor: tensor.fill_(torch.nan))
    found = states_of(folder, [[7, 9, 11], [5] * 40], 64, cpu_backend=backend)
    assert all(one.isnan().all() for one in found)


@needs_kernels
@torch.inference_mode()
@pytest.mark.parametrize("name", ["qwen2-moe", "glm4-moe"])
@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_quantized_experts_are_exact(tmp_path: Path, name: str, quantization: str) -> None:
    """Alone, in chunks and beside others: few rows of an expert, and many."""
    folder = make_family_checkpoint(tmp_path, name)
    generator = random.Random(1)
    prompts = [[generator.randrange(3, VOCAB) for _ in range(size)] for size in (150, 90, 3)]
    settings = {"quantization": quantization, "dtype": "bfloat16"}
    alone = [states_of(folder, [one], 256, **settings)[-1] for one in prompts]
    in_chunks = states_of(folder, [prompts[0]], 7, **settings)[-1]
    together = states_of(folder, prompts, 512, **settings)[0]
    assert torch.equal(in_chunks, alone[0])
    assert torch.equal(together, torch.cat(alone))
    plain = states_of(folder, [prompts[0]], 256, dtype="float32")[-1]
    near = torch.nn.functional.cosine_similarity(alone[0], plain)
    assert near.item() > (0.999 if quantization == "int8" else 0.9)


@needs_kernels
@torch.inference_mode()
def test_tokens_of_experts_are_counted(tmp_path: Path) -> None:
    """Layer 1 has no experts; each other token has 4 experts in a layer, and none comes twice."""
    folder = make_family_checkpoint(tmp_path, "qwen2-moe")
    prompts, max_tokens = [[7, 9, 11, 40], [5] * 30], 3
    num_tokens = sum(map(len, prompts)) + len(prompts) * (max_tokens - 1)
    found = []
    for backend in ("fused", "torch"):
        settings = {"cpu_backend": backend, "dtype": "float32", "expert_metrics": True}
        replica = load(folder, max_model_len=MAX_POSITIONS, **settings)
        assert replica.expert_counts is not None
        assert not any(one.any() for one in replica.expert_counts.tokens.values())
        Driver.of(replica).generate(prompts, max_tokens=max_tokens, budget=16)
        found.append({n: one.tolist() for n, one in replica.expert_counts.tokens.items()})
        assert replica.expert_counts.imbalance(2) == max(found[-1][2]) * 9 / (4 * num_tokens)
    assert found[0] == found[1]
    assert found[0].keys() == {0, 2}
    assert all(sum(one) == 4 * num_tokens for one in found[0].values())
    EXPERTS.show("it", replica.expert_counts)
    tokens, imbalance = EXPERTS.collect()
    assert sum(sample.value for sample in tokens.samples) == 2 * 4 * num_tokens
    assert {sample.labels["layer"] for sample in imbalance.samples} == {"0", "2"}


def test_kernels_that_do_not_count_are_named(tmp_path: Path) -> None:
    folder = make_family_checkpoint(tmp_path, "qwen3-moe")
    with pytest.raises(StartupError, match=r"--expert-metrics: .* does not count") as caught:
        load(folder, attention_backend="triton", expert_metrics=True, **TINY)
    assert caught.value.field == "expert_metrics"


def test_routes_of_groups_follow_the_formula() -> None:
    """Worked by hand: groups {0, 1} and {2, 3}; the bias chooses and does not weigh."""
    spec = RouterSpec(
        linear=LinearSpec(parts=(("gate", 4),), num_inputs=1),
        num_experts=4,
        num_chosen=2,
        score="sigmoid",
        choice_bias="bias",
        factor=3.0,
        num_groups=2,
        num_chosen_groups=1,
        group_best=2,
    )
    values = torch.tensor([[0.0, 0.0, 2.0, -9.0]])
    bias = torch.tensor([0.0, 0.4, 0.0, 0.0])
    weights, chosen = route(spec, values, bias)
    assert chosen.tolist() == [[1, 0]]
    torch.testing.assert_close(weights, torch.tensor([[1.5, 1.5]]))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"num_experts_per_tok": 13}, "num_experts_per_tok (13) is more than its 12 experts"),
        ({"n_group": 5}, "n_group (5) and topk_group (2) do not give 5 of 12 experts"),
        ({"topk_group": 1}, "n_group (4) and topk_group (1) do not give 5 of 12 experts"),
        ({"n_routed_experts": None}, "num_experts is missing"),
        ({"moe_intermediate_size": None}, "moe_intermediate_size is missing"),
    ],
)
def test_fields_that_do_not_fit_are_named(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(StartupError) as caught:
        native_plan({**CONFIG, **fields})
    assert text in str(caught.value)


def test_clipped_queries_are_refused() -> None:
    config = {**CONFIG, "architectures": ["OlmoeForCausalLM"], "clip_qkv": 8.0}
    with pytest.raises(StartupError, match="clip_qkv"):
        native_plan(config)


def test_layers_of_further_tokens_are_left_out() -> None:
    plan = native_plan({**CONFIG, "num_nextn_predict_layers": 1})
    assert "model.layers.2." in plan.unused
