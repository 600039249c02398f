"""OLMo 2 (OLMo Team, 2025): norms behind attention and MLP only, and of all queries and keys of a
token together."""

from collections.abc import Mapping
from typing import Any

from pagewire_worker.families.fields import Data, activation
from pagewire_worker.families.parts import (
    Family,
    attention,
    gated_mlp,
    layer_names,
    model_plan,
    read_sizes,
    rms_norms,
)
from pagewire_worker.families.plan import BranchNorms, LayerSpec, ModelPlan, NormSpec
from pagewire_worker.families.rope import read_rope
from pagewire_worker.families.windows import no_windows

DEFAULTS: Mapping[str, Any] = {"rms_norm_eps": 1e-5}


def _read(data: Data) -> ModelPlan:
    data = {**DEFAULTS, **data}
    sizes, acts = read_sizes(data), activation(data)
    rope = read_rope(data, sizes.head_dim, rounds_late=True)
    norm = rms_norms(data, sizes.hidden, rounds_late=True)
    no_windows(data)
    has_bias = bool(data.get("attention_bias"))

    def head_norm(name: str) -> NormSpec:
        num_heads = sizes.num_heads if name.endswith("q_norm") else sizes.num_kv_heads
        return rms_norms(data, num_heads * sizes.head_dim, rounds_late=True)(name)

    layers = [
        LayerSpec(
            attention(
                sizes,
                f"{name}.self_attn",
                rope=rope,
                has_qkv_bias=has_bias,
                has_output_bias=has_bias,
                head_norm=head_norm,
            ),
            BranchNorms(None, norm(f"{name}.post_attention_layernorm")),
            gated_mlp(sizes, f"{name}.mlp", activation=acts),
            BranchNorms(None, norm(f"{name}.post_feedforward_layernorm")),
        )
        for name in layer_names(sizes)
    ]
    return model_plan(data, layers, norm("model.norm"))


FAMILIES = (Family(architecture="Olmo2ForCausalLM", read=_read),)
