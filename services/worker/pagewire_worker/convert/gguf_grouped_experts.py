"""Settings of GGUF files of GLM-4.5 and DeepSeek, in the form that config.json has for them.

Keys are those of llama.cpp's converter (Glm4MoeModel, DeepseekV2Model). DeepSeek's attention is
described there as one head over latents, whose expanding matrix is cut in two.
"""

from collections.abc import Callable, Collection
from typing import Any, Final

from pagewire_shared.errors import StartupError

GetValue = Callable[[str, Any], Any]
"""(key, default) -> what the file has for the key, or the default."""

_SIGMOID: Final = 2
"""ExpertGatingFuncType.SIGMOID of the package gguf."""

_LOG_MULTIPLIER: Final = 0.1
"""What the file has for an mscale_all_dim of 1."""

ROUTER: Final = {
    "ffn_gate_inp.weight": "mlp.gate.weight",
    "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
    "ffn_gate_shexp.weight": "mlp.shared_experts.gate_proj.weight",
    "ffn_up_shexp.weight": "mlp.shared_experts.up_proj.weight",
    "ffn_down_shexp.weight": "mlp.shared_experts.down_proj.weight",
}
"""Names of a router's tensors and of the shared expert's."""

LATENTS: Final = {
    "attn_q_a.weight": "self_attn.q_a_proj.weight",
    "attn_q_a_norm.weight": "self_attn.q_a_layernorm.weight",
    "attn_q_b.weight": "self_attn.q_b_proj.weight",
    "attn_kv_a_mqa.weight": "self_attn.kv_a_proj_with_mqa.weight",
    "attn_kv_a_norm.weight": "self_attn.kv_a_layernorm.weight",
    "attn_kv_b.weight": "self_attn.kv_b_proj.weight",
    "attn_k_b.weight": "self_attn.k_b_proj.weight",
    "attn_v_b.weight": "self_attn.v_b_proj.weight",
}
"""Names of the tensors of attention over latents."""

FIELDS: Final = {
    "num_experts_per_tok": "expert_used_count",
    "n_routed_experts": "expert_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "n_shared_experts": "expert_shared_count",
    "routed_scaling_factor": "expert_weights_scale",
}


def glm_fields(value: GetValue, names: Collection[str]) -> dict[str, Any]:
    """Return the fields of config.json of a file of GLM-4.5; `names` are those of its tensors."""
    head_dim = value("attention.key_length", None)
    return {
        **_router_fields(value),
        "num_hidden_layers": value("block_count", None) - value("nextn_predict_layers", 0),
        "partial_rotary_factor": value("rope.dimension_count", head_dim // 2) / head_dim,
        "use_qk_norm": "blk.0.attn_q_norm.weight" in names,
        "attention_bias": "blk.0.attn_q.bias" in names,
    }


def deepseek_fields(value: GetValue, names: Collection[str]) -> dict[str, Any]:
    """Return the fields of config.json of a file of DeepSeek V2 or V3. Raises StartupError."""
    fields, num_heads = _router_fields(value), value("attention.head_count", None)
    turned, rank = value("rope.dimension_count", None), value("attention.kv_lora_rank", None)
    is_cut = "blk.0.attn_k_b.weight" in names
    end = "_mla" if is_cut else ""
    is_sigmoid = value("expert_gating_func", 1) == _SIGMOID
    has_groups = fields["n_group"] > 1
    version = "3" if is_sigmoid else "2"
    if is_sigmoid and "blk.0.attn_q_a.weight" not in names and "blk.0.attn_q.weight" not in names:
        raise StartupError("the GGUF file has no queries of the form of DeepSeek V3")
    return {
        **fields,
        "architectures": [f"DeepseekV{version}ForCausalLM"],
        "model_type": f"deepseek_v{version}",
        "scoring_func": "sigmoid" if is_sigmoid else "softmax",
        "topk_method": "noaux_tc"
        if is_sigmoid
        else "group_limited_greedy"
        if has_groups
        else "greedy",
        "num_key_value_heads": num_heads,
        "q_lora_rank": value("attention.q_lora_rank", 0) or None,
        "kv_lora_rank": rank,
        "qk_rope_head_dim": turned,
        "qk_nope_head_dim": value(f"attention.key_length{end}", None) - turned,
        "v_head_dim": value(f"attention.value_length{end}", None),
        "is_kv_b_proj_cut": is_cut,
    }


def yarn_multiplier(stored: float | None) -> dict[str, float]:
    """Return the fields of YaRN of the factor that DeepSeek's scores have by it."""
    if not stored:
        return {}
    factor = round(stored / _LOG_MULTIPLIER, 6)
    return {"mscale": factor, "mscale_all_dim": factor}


def _router_fields(value: GetValue) -> dict[str, Any]:
    return {
        "first_k_dense_replace": value("leading_dense_block_count", 0),
        "norm_topk_prob": bool(value("expert_weights_norm", False)),
        # Older files have no groups, and llama.cpp computes them without.
        "n_group": value("expert_group_count", 0) or 1,
        "topk_group": value("expert_group_used_count", 0) or 1,
    }
