"""The random weights and the configuration of a checkpoint in the form of gpt-oss, its experts in
MXFP4 as they are published."""

from typing import Any

import torch

BLOCK = 32
"""Values that share a scale; two of them are in one byte."""
LEAST_SCALE, MOST_SCALE = 119, 123
"""Powers of 2 plus 127: weights of about 0.02."""


def layer_tensors(shape: Any, prefix: str, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Return what a layer has beside its norms.

    Args:
        shape: Sizes, as in make_checkpoint.
        prefix: Of the names.
    """

    def normal(*size: int) -> torch.Tensor:
        return (torch.randn(*size, generator=generator) * 0.02).to(torch.bfloat16)

    def codes(low: int, high: int, *size: int) -> torch.Tensor:
        return torch.randint(low, high, size, generator=generator, dtype=torch.uint8)

    width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    tensors = {f"{prefix}self_attn.sinks": normal(shape.heads)}
    sizes = (("q", width, shape.hidden), ("k", kv_width, shape.hidden))
    for name, out, inputs in (*sizes, ("v", kv_width, shape.hidden), ("o", shape.hidden, width)):
        tensors[f"{prefix}self_attn.{name}_proj.weight"] = normal(out, inputs)
        tensors[f"{prefix}self_attn.{name}_proj.bias"] = normal(out)
    tensors[f"{prefix}mlp.router.weight"] = normal(shape.experts, shape.hidden)
    tensors[f"{prefix}mlp.router.bias"] = normal(shape.experts)
    for name, out, inputs in (
        ("gate_up_proj", 2 * shape.intermediate, shape.hidden),
        ("down_proj", shape.hidden, shape.intermediate),
    ):
        stem, blocks = f"{prefix}mlp.experts.{name}", (shape.experts, out, inputs // BLOCK)
        tensors[f"{stem}_blocks"] = codes(0, 256, *blocks, BLOCK // 2)
        tensors[f"{stem}_scales"] = codes(LEAST_SCALE, MOST_SCALE, *blocks)
        tensors[f"{stem}_bias"] = normal(shape.experts, out)
    return tensors


def config_fields(shape: Any) -> dict[str, object]:
    """Return the fields of config.json that other models do not have."""
    layers = range(shape.layers)
    return {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "head_dim": shape.head_dim,
        "num_local_experts": shape.experts,
        "num_experts_per_tok": shape.chosen,
        "layer_types": ["full_attention" if i % 2 else "sliding_attention" for i in layers],
        "sliding_window": 128,
        "swiglu_limit": 7.0,
        "attention_bias": True,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 8.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": shape.context // 8,
        },
        "quantization_config": {
            "quant_method": "mxfp4",
            "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router"],
        },
    }
