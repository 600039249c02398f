"""Parts of a model: ranks read every number once, shared KV heads twice, and refuse by name."""

from dataclasses import replace
from typing import Any

import pytest

from pagewire_shared.errors import StartupError
from pagewire_worker.backend.collectives import RankTopology
from pagewire_worker.families.plan import ModelPlan
from pagewire_worker.models.registry import native_plan
from pagewire_worker.parallel.plan_shards import shard_plan

CONFIG: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 101,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}


def plan(**changes: Any) -> ModelPlan:
    return native_plan({**CONFIG, **changes})


def rows(name: str, size: int) -> list[tuple[tuple[int, int], ...]]:
    return [shard_plan(plan(), RankTopology(rank, size)).cuts[name].rows for rank in range(size)]


def test_heads_and_inner_values_are_divided() -> None:
    attention = "model.layers.0.self_attn"
    assert rows(f"{attention}.q_proj.weight", 2) == [((0, 32),), ((32, 64),)]
    assert rows(f"{attention}.k_proj.bias", 2) == [((0, 8),), ((8, 16),)]
    assert rows("model.layers.1.mlp.up_proj.weight", 2) == [((0, 48),), ((48, 96),)]
    shard = shard_plan(plan(), RankTopology(1, 2))
    assert shard.cuts[f"{attention}.o_proj.weight"].columns == (32, 64)
    assert shard.cuts["model.layers.1.mlp.down_proj.weight"].columns == (48, 96)
    local = shard.plan.attention
    assert (local.num_heads, local.num_kv_heads, local.sizes) == (4, 1, (32, 8, 8))
    assert shard.plan.layers[0].mlps[0].size == 48


def test_ranks_share_kv_heads_where_there_are_fewer() -> None:
    name = "model.layers.0.self_attn.v_proj.weight"
    assert rows(name, 4) == [((0, 8),), ((0, 8),), ((8, 16),), ((8, 16),)]


def test_the_last_rank_has_what_is_left_of_the_vocabulary() -> None:
    assert rows("lm_head.weight", 4) == [((0, 26),), ((26, 52),), ((52, 78),), ((78, 101),)]
    shard = shard_plan(plan(), RankTopology(3, 4))
    assert (shard.first_token, shard.plan.vocab_size, shard.num_tokens) == (78, 23, 101)


def test_one_tensor_of_several_matrices_is_cut_in_each() -> None:
    config = {**CONFIG, "architectures": ["Phi3ForCausalLM"], "model_type": "phi3"}
    shard = shard_plan(native_plan(config), RankTopology(1, 2))
    merged = shard.cuts["model.layers.0.self_attn.qkv_proj.weight"]
    assert merged.rows == ((32, 64), (72, 80), (88, 96))
    assert shard.cuts["model.layers.0.mlp.gate_up_proj.weight"].rows == ((48, 96), (144, 192))


def test_the_first_rank_adds_a_bias_of_a_sum() -> None:
    whole = plan()
    layer = whole.layers[0]
    output = replace(layer.attention.output, has_bias=True)
    attention = replace(layer.attention, output=output)
    whole = replace(whole, layers=(replace(layer, attention=attention),))
    first, second = (shard_plan(whole, RankTopology(rank, 2)) for rank in range(2))
    assert (first.plan.attention.output.has_bias, first.unread) == (True, frozenset())
    assert not second.plan.attention.output.has_bias
    assert second.unread == {"model.layers.0.self_attn.o_proj.bias"}


@pytest.mark.parametrize(
    ("changes", "size", "message"),
    [
        ({}, 3, r"num_attention_heads \(8\) cannot be divided between 3 ranks"),
        ({"intermediate_size": 98}, 4, r"intermediate_size \(98\) cannot be divided"),
        ({"vocab_size": 512}, 16, r"num_attention_heads \(8\)"),
        ({"num_attention_heads": 12, "num_key_value_heads": 3, "hidden_size": 96}, 2, "key_value"),
        ({"vocab_size": 3}, 4, r"vocab_size \(3\) leaves a rank without"),
    ],
)
def test_what_cannot_be_divided_is_named(changes: Any, size: int, message: str) -> None:
    with pytest.raises(StartupError, match=f"^--tensor-parallel-size: .*{message}") as caught:
        shard_plan(plan(**changes), RankTopology(0, size))
    assert caught.value.field == "tensor_parallel_size"
