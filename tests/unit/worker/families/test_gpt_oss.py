"""Plans of gpt-oss: the published config.json, what it may leave out, and what does not do."""

from typing import Any

import pytest
import torch
from transformers import GptOssConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from pagewire_shared.errors import StartupError
from pagewire_worker.backend.attention import AttentionKind
from pagewire_worker.families.plan import ClampedSwiglu, ModelPlan
from pagewire_worker.layers.rope_scaling import scaled_frequencies
from pagewire_worker.models.registry import native_plan

PUBLISHED: dict[str, Any] = {
    "architectures": ["GptOssForCausalLM"],
    **{"model_type": "gpt_oss", "num_hidden_layers": 24, "num_local_experts": 32},
    **{"hidden_size": 2880, "intermediate_size": 2880, "head_dim": 64, "vocab_size": 201088},
    **{"num_attention_heads": 64, "num_key_value_heads": 8, "num_experts_per_tok": 4},
    **{"experts_per_token": 4, "attention_bias": True, "sliding_window": 128, "swiglu_limit": 7.0},
    **{"initial_context_length": 4096, "max_position_embeddings": 131072, "rope_theta": 150000},
    **{"rms_norm_eps": 1e-05, "hidden_act": "silu", "tie_word_embeddings": False},
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "rope_scaling": {
        **{"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "truncate": False},
        **{"original_max_position_embeddings": 4096, "rope_type": "yarn"},
    },
    "quantization_config": {
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.embed_tokens", "lm_head"],
        "quant_method": "mxfp4",
    },
}
"""Of gpt-oss-20b."""

SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_local_experts", "vocab_size")
HEADS = ("num_attention_heads", "num_key_value_heads", "architectures")
LEAST = {name: PUBLISHED[name] for name in (*SIZES, *HEADS)}


def plan_of(**fields: Any) -> ModelPlan:
    return native_plan({**PUBLISHED, **fields})


def test_what_config_json_may_leave_out_is_that_of_the_published_models() -> None:
    assert native_plan(LEAST) == plan_of(dtype=None)


def test_layers_of_the_published_models() -> None:
    plan = plan_of()
    windows = [128, None] * 12
    assert plan.kinds == [AttentionKind(window, has_sinks=True) for window in windows]
    attention, experts = plan.attention, plan.layers[3].experts
    assert attention.sinks == "model.layers.0.self_attn.sinks"
    assert attention.qkv.has_bias
    assert attention.output.has_bias
    assert experts is not None
    assert (len(experts.experts), experts.router.num_chosen) == (32, 4)
    assert experts.experts[0].clamped == ClampedSwiglu(7.0, 1.702)
    assert experts.experts[31].up.parts[1] == ("model.layers.3.mlp.experts.31.up_proj", 2880)


def test_positions_are_those_of_transformers() -> None:
    rope = plan_of().attention.rope
    assert rope is not None
    config = GptOssConfig(rope_theta=150000)
    expected, factor = ROPE_INIT_FUNCTIONS["yarn"](config, torch.device("cpu"))
    found, scale = scaled_frequencies(rope, 1000)
    torch.testing.assert_close(found, expected, atol=0, rtol=1e-6)
    assert scale == pytest.approx(factor)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"swiglu_limit": 0}, "swiglu_limit must be a positive number, got 0"),
        ({"swiglu_alpha": "x"}, "swiglu_alpha must be a positive number, got 'x'"),
        ({"num_experts_per_tok": 33}, "num_experts_per_tok (33) is more than its 32 experts"),
        ({"layer_types": ["full_attention"]}, "layer_types must have 24 entries"),
        ({"sliding_window": None}, "layers with a window need a sliding_window"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "needs a positive factor"),
    ],
)
def test_fields_that_do_not_do_are_named(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(StartupError) as caught:
        plan_of(**fields)
    assert text in caught.value.message
