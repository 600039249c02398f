"""Stages of a model: each layer is in one, ends have what they read, all have all cache groups."""

from itertools import pairwise
from typing import Any

import pytest

from pagewire_shared.errors import StartupError
from pagewire_worker.backend.collectives import RankTopology
from pagewire_worker.families.plan import ModelPlan
from pagewire_worker.models.registry import native_plan
from pagewire_worker.parallel.plan_shards import shard_plan
from pagewire_worker.parallel.plan_stages import PlanStage, cut_stage, layers_of

CONFIG: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "num_hidden_layers": 5,
    "vocab_size": 101,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}

WINDOWS = {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 2}


def plan(**changes: Any) -> ModelPlan:
    return native_plan({**CONFIG, **changes})


def stages(whole: ModelPlan, number: int) -> list[PlanStage]:
    return [cut_stage(whole, RankTopology(0, 1, stage, number)) for stage in range(number)]


@pytest.mark.parametrize("num_layers", [1, 2, 7, 32, 61])
@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_each_layer_is_in_one_stage(num_layers: int, number: int) -> None:
    found = [layers_of(num_layers, stage, number) for stage in range(number)]
    assert [layer for own in found for layer in own] == list(range(num_layers))
    sizes = [len(own) for own in found]
    assert all(0 <= before - after <= 1 for before, after in pairwise(sizes))


def test_ranks_are_numbered_from_the_last_stage() -> None:
    places = [RankTopology.of(rank, 2, 3) for rank in range(6)]
    assert [(one.stage, one.tp_rank) for one in places] == [
        *((2, 0), (2, 1)),
        *((1, 0), (1, 1)),
        *((0, 0), (0, 1)),
    ]
    assert [one.rank for one in places] == list(range(6))
    assert (places[0].is_last, places[0].is_first, places[5].is_first) == (True, False, True)
    assert places[0].size == 6


def test_the_ends_have_the_tensors_that_they_read() -> None:
    first, middle, last = stages(plan(), 3)
    assert [len(one.plan.layers) for one in (first, middle, last)] == [2, 2, 1]
    assert [one.plan.reads_embedding for one in (first, middle, last)] == [True, False, False]
    others = {f"model.layers.{layer}." for layer in (2, 3, 4)}
    assert set(first.unread) == {*others, "model.norm.", "lm_head."}
    assert {"model.embed_tokens.", "lm_head.", "model.norm."} <= set(middle.unread)
    assert {"model.layers.3.", "model.embed_tokens."} <= set(last.unread)
    assert "model.layers.4." not in last.unread
    assert "lm_head." not in last.unread


def test_both_ends_read_an_embedding_that_gives_the_logits() -> None:
    first, middle, last = stages(plan(tie_word_embeddings=True), 3)
    assert [one.plan.reads_embedding for one in (first, middle, last)] == [True, False, True]
    assert "model.embed_tokens." not in last.unread


def test_stages_have_the_cache_groups_of_the_model() -> None:
    """Block tables come from rank 0, so a group without a layer in a stage is there, too."""
    whole = plan(**WINDOWS)
    shape = whole.cache_shape
    assert len(shape.groups) > 1
    parts = [one.plan.cache_shape for one in stages(whole, 4)]
    assert all(part.windows == shape.windows for part in parts)
    assert parts[-1].groups[0].layers == ()
    found = []
    for stage, part in enumerate(parts):
        first = layers_of(5, stage, 4).start
        found += [(first + layer, at) for at, one in enumerate(part.groups) for layer in one.layers]
        assert part.num_stored_layers <= shape.num_stored_layers
    expected = [(layer, at) for at, one in enumerate(shape.groups) for layer in one.layers]
    assert sorted(found) == sorted(expected)


def test_layers_of_one_window_keep_all_positions_where_the_model_does() -> None:
    """One group of layers with and without a window gives no block back."""
    whole = plan(**WINDOWS, max_position_embeddings=64)
    assert (whole.cache_shape.groups, whole.cache_shape.window) == ((), None)
    last = stages(whole, 2)[1].plan
    assert {kind.window for kind in last.kinds} == {64}
    assert last.cache_shape.window is None
    alike = plan(**{**WINDOWS, "max_window_layers": 0})
    assert alike.cache_shape.window == 64
    assert [one.plan.cache_shape.window for one in stages(alike, 2)] == [64, 64]


def test_ranks_divide_the_layers_of_their_stage() -> None:
    topology = RankTopology.of(1, 2, 2)
    stage = cut_stage(plan(**WINDOWS), topology)
    shard = shard_plan(stage.plan, topology)
    assert shard.plan.cache_shape.num_kv_heads == 1
    assert shard.plan.cache_shape.groups == stage.plan.cache_shape.groups
    assert "model.layers.4.mlp.up_proj.weight" in shard.cuts
    assert "model.layers.0.mlp.up_proj.weight" not in shard.cuts


def test_more_stages_than_layers_are_refused() -> None:
    message = r"^--pipeline-parallel-size: 6 stages are more than the 5 layers of the model"
    with pytest.raises(StartupError, match=message) as caught:
        cut_stage(plan(), RankTopology(0, 1, 5, 6))
    assert caught.value.field == "pipeline_parallel_size"
