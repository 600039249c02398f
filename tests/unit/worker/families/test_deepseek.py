"""Plans of DeepSeek's published config.json files: what a token keeps, and what is refused."""

import math

import pytest
import torch

from pagewire.inspect.model_size import model_size
from pagewire_protos.common.v1 import layout_pb2
from pagewire_shared.errors import StartupError
from pagewire_shared.model_files.config import read_config
from pagewire_worker.families.fields import UnsupportedModelError
from pagewire_worker.kv.kv_cache import bytes_per_block
from pagewire_worker.models.registry import native_plan
from pagewire_worker.offload.layout_convert import layout_to_message
from support.cells.worker_driver import load
from support.oracles.family_checkpoints import make_family_checkpoint

V3 = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "vocab_size": 129280,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "first_k_dense_replace": 3,
    "n_group": 8,
    "topk_group": 4,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "moe_layer_freq": 1,
    "ep_size": 1,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "max_position_embeddings": 163840,
    "num_nextn_predict_layers": 1,
    "rope_theta": 10000,
    "rope_scaling": {
        "beta_fast": 32,
        "beta_slow": 1,
        "factor": 40,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096,
        "type": "yarn",
    },
}
V2_LITE = {
    **V3,
    "architectures": ["DeepseekV2ForCausalLM"],
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "hidden_size": 2048,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "greedy",
    "scoring_func": "softmax",
    "norm_topk_prob": False,
    "routed_scaling_factor": 1.0,
    "first_k_dense_replace": 1,
    "q_lora_rank": None,
}


@pytest.mark.parametrize(("data", "layers"), [(V3, 61), (V2_LITE, 27)])
def test_a_token_keeps_its_latents_and_no_heads(data, layers):
    plan = native_plan(data)
    shape, heads = plan.cache_shape, data["num_attention_heads"]
    assert bytes_per_block(shape, 16, torch.bfloat16) == 16 * layers * (512 + 64) * 2
    expanded = layers * heads * (128 + 64 + 128) * 2
    assert expanded >= 4 * bytes_per_block(shape, 1, torch.bfloat16)
    growth = 0.1 * math.log(40) + 1
    assert plan.kinds[0].scale == pytest.approx(192**-0.5 * growth**2)
    assert f"model.layers.{layers}." in plan.unused
    assert [layer.experts is None for layer in plan.layers].count(True) == (
        data["first_k_dense_replace"]
    )


def test_the_rows_of_rotated_parts_are_brought_into_the_order_of_pairs():
    for data in (V3, V2_LITE):
        spec = native_plan(data).attention
        order = spec.order_of(spec.qkv.num_outputs)
        assert sorted(order) == [*range(spec.qkv.num_outputs)]
        first = spec.qkv.num_outputs - 64
        assert order[first : first + 3] == [first, first + 2, first + 4]
        queries = spec.query_order
        assert sorted(queries) == [*range(data["num_attention_heads"] * 192)]
        assert queries[126:131] == [126, 127, 128, 130, 132]


@pytest.mark.parametrize(
    ("data", "fields", "text"),
    [
        (V3, {"attention_bias": True}, "attention_bias True is not supported here"),
        (V3, {"moe_layer_freq": 2}, "moe_layer_freq 2 is not supported here"),
        (V3, {"scoring_func": "softmax"}, "scoring_func 'softmax' is not supported here"),
        (V3, {"num_key_value_heads": 8}, "num_key_value_heads (8) must be num_attention_heads"),
        (V3, {"n_group": 7}, "n_group (7) and topk_group"),
        (V2_LITE, {"norm_topk_prob": True}, "norm_topk_prob True is not supported here"),
        (V2_LITE, {"topk_method": "noaux_tc"}, "topk_method 'noaux_tc' is not supported here"),
        (V3, {"architectures": ["DeepseekV32ForCausalLM"]}, "architecture DeepseekV32ForCausalLM"),
    ],
)
def test_what_is_refused(data, fields, text):
    with pytest.raises((StartupError, UnsupportedModelError)) as caught:
        native_plan({**data, **fields})
    assert text in caught.value.message


def test_a_worker_says_that_its_cache_keeps_latents(tmp_path):
    folder = make_family_checkpoint(tmp_path, "deepseek-v2")
    replica = load(folder, block_size=16)
    [group] = layout_to_message(replica.info.layout).groups
    assert group.kind == layout_pb2.CACHE_KIND_LATENT
    per_token = 2 * (48 + 16) * 4
    assert group.bytes_per_block == 16 * per_token
    cache = replica.model_runner.backend.kv_cache
    memory = sum(part.nbytes for layer in cache.stored for part in layer.parts)
    assert memory == cache.num_blocks * 16 * per_token
    data = read_config(folder)
    size = model_size(folder, data, dtype="float32", quantization="none", max_len=64)
    assert size.kv_token_bytes == per_token
    with pytest.raises(StartupError, match="fp8_e4m3 needs --attention-backend triton"):
        load(folder, block_size=16, kv_cache_dtype="fp8_e4m3")
