"""Small checkpoints of the families of the native decoder.

Sizes are those that the kernels for CPUs take. Numbers that a small random model would hide are
small too: caps bend its scores and logits, windows and contexts before scaling are short.
"""

from pathlib import Path
from typing import Any

from support.checkpoints.fallback_checkpoints import make_fallback_checkpoint

WINDOW = 9
MAX_POSITIONS = 512
SLIDING, FULL = "sliding_attention", "full_attention"

SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 160,
    "max_position_embeddings": MAX_POSITIONS,
}
_TWO = {**SHAPE, "num_hidden_layers": 2}
_MIXED = {"sliding_window": WINDOW, "layer_types": [SLIDING, FULL, SLIDING]}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 1000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}

_LATENT = {
    **{k: v for k, v in _TWO.items() if k not in ("head_dim", "num_key_value_heads")},
    "num_key_value_heads": 4,
    "kv_lora_rank": 48,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
}

# Name to (model type, fields of config.json).
FAMILY_CHECKPOINTS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma2": (
        "gemma2",
        {
            **SHAPE,
            "query_pre_attn_scalar": 24,
            "sliding_window": WINDOW,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
        },
    ),
    "gemma3": (
        "gemma3_text",
        {
            **SHAPE,
            **_MIXED,
            "query_pre_attn_scalar": 24,
            "rope_parameters": {
                FULL: {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e4},
                SLIDING: {"rope_type": "default", "rope_theta": 50.0},
            },
        },
    ),
    "phi3": ("phi3", {**SHAPE, "sliding_window": WINDOW}),
    "phi3-longrope": (
        "phi3",
        {
            **SHAPE,
            "max_position_embeddings": 4 * MAX_POSITIONS,
            "original_max_position_embeddings": MAX_POSITIONS,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.75,
                "short_factor": [1.0, 1.1, 1.3, 1.7, 2.5, 4.0],
                "long_factor": [1.0, 2.0, 3.0, 5.0, 8.0, 9.0],
            },
        },
    ),
    "smollm3": (
        "smollm3",
        {**SHAPE, "no_rope_layers": [1, 0, 1], "tie_word_embeddings": True},
    ),
    "granite": (
        "granite",
        {
            **SHAPE,
            "attention_multiplier": 0.3,
            "embedding_multiplier": 6.0,
            "residual_multiplier": 0.22,
            "logits_scaling": 3.0,
        },
    ),
    "glm": ("glm", SHAPE),
    "glm4": ("glm4", SHAPE),
    "olmo2": ("olmo2", {k: v for k, v in SHAPE.items() if k != "head_dim"}),
    "starcoder2": (
        "starcoder2",
        {
            **{k: v for k, v in SHAPE.items() if k != "head_dim"},
            "sliding_window": WINDOW,
            "hidden_act": "gelu",
        },
    ),
    "ministral": ("ministral", {**SHAPE, **_MIXED}),
    # Queries grow after 8 positions.
    "ministral3": (
        "ministral3",
        {
            **SHAPE,
            "rope_parameters": {
                **_YARN,
                "original_max_position_embeddings": 8,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.5,
            },
        },
    ),
    "qwen2-mixed": (
        "qwen2",
        {
            **{k: v for k, v in SHAPE.items() if k != "head_dim"},
            "use_sliding_window": True,
            "max_window_layers": 1,
            "sliding_window": WINDOW,
        },
    ),
    "qwen3-yarn": ("qwen3", {**SHAPE, "rope_parameters": _YARN}),
    # Fewer tokens than experts, and more: some experts have no rows.
    "mixtral": ("mixtral", {**_TWO, "num_local_experts": 6, "num_experts_per_tok": 2}),
    "mixtral-window": (
        "mixtral",
        {**_TWO, "num_local_experts": 4, "num_experts_per_tok": 3, "sliding_window": WINDOW},
    ),
    "olmoe": (
        "olmoe",
        {
            **{k: v for k, v in _TWO.items() if k != "head_dim"},
            "intermediate_size": 48,
            "num_experts": 10,
            "num_experts_per_tok": 4,
        },
    ),
    # Layers without experts beside layers with them, and a shared expert with a gate.
    "qwen2-moe": (
        "qwen2_moe",
        {
            **{k: v for k, v in SHAPE.items() if k != "head_dim"},
            "moe_intermediate_size": 48,
            "shared_expert_intermediate_size": 96,
            "num_experts": 9,
            "num_experts_per_tok": 4,
            "mlp_only_layers": [1],
        },
    ),
    "qwen3-moe": (
        "qwen3_moe",
        {
            **_TWO,
            "moe_intermediate_size": 48,
            "num_experts": 18,
            "num_experts_per_tok": 6,
            "norm_topk_prob": True,
        },
    ),
    # Groups of experts, and a bias of their choice.
    "glm4-moe": (
        "glm4_moe",
        {
            **_TWO,
            "moe_intermediate_size": 48,
            "n_routed_experts": 12,
            "num_experts_per_tok": 5,
            "n_group": 4,
            "topk_group": 2,
            "n_shared_experts": 2,
            "routed_scaling_factor": 1.7,
            "first_k_dense_replace": 1,
            "use_qk_norm": True,
            "attention_bias": True,
        },
    ),
    # Sinks, biases, and gates that meet their limit.
    "gpt-oss": (
        "gpt_oss",
        {
            **_TWO,
            "intermediate_size": 64,
            "num_local_experts": 6,
            "num_experts_per_tok": 3,
            "sliding_window": WINDOW,
            "swiglu_limit": 0.5,
            "rope_parameters": {**_YARN, "truncate": False},
        },
    ),
    # Latents: queries of two products, a context beyond the first; experts as in glm4-moe.
    "deepseek-v3": (
        "deepseek_v3",
        {
            **_LATENT,
            "num_attention_heads": 6,
            "num_key_value_heads": 6,
            "q_lora_rank": 32,
            "moe_intermediate_size": 48,
            "n_routed_experts": 12,
            "num_experts_per_tok": 5,
            "n_group": 4,
            "topk_group": 2,
            "n_shared_experts": 2,
            "first_k_dense_replace": 1,
            "rope_parameters": {**_YARN, "mscale": 1.0, "mscale_all_dim": 0.7},
        },
    ),
    # Plain queries; groups go by their best score, which is part of a softmax.
    "deepseek-v2": (
        "deepseek_v2",
        {
            **_LATENT,
            "q_lora_rank": None,
            "moe_intermediate_size": 48,
            "n_routed_experts": 12,
            "num_experts_per_tok": 5,
            "n_group": 4,
            "topk_group": 2,
            "topk_method": "group_limited_greedy",
            "n_shared_experts": 1,
            "routed_scaling_factor": 3.0,
        },
    ),
    "llama-dynamic": ("llama", {**SHAPE, "rope_parameters": {**_YARN, "rope_type": "dynamic"}}),
}


def make_family_checkpoint(folder: Path, name: str) -> Path:
    """Write one of FAMILY_CHECKPOINTS below `folder` and return its folder."""
    model_type, fields = FAMILY_CHECKPOINTS[name]
    return make_fallback_checkpoint(folder / name, model_type, fields)
