"""GLM-4 (GLM Team, 2024): the first half of each head is rotated, neighbour with neighbour. The
models of 2025 also have norms behind attention and MLP."""

from collections.abc import Mapping
from typing import Any

from pagewire_worker.backend.attention import AttentionKind
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
from pagewire_worker.families.plan import BranchNorms, LayerSpec, ModelPlan
from pagewire_worker.families.rope import read_rope
from pagewire_worker.families.windows import no_windows

DEFAULTS: Mapping[str, Any] = {
    "head_dim": 128,
    "rms_norm_eps": 1.5625e-7,
    "attention_bias": True,
    "max_position_embeddings": 131072,
}
ROTATED_PART = 0.5


def _plan(data: Data, *, has_norms_after: bool) -> ModelPlan:
    data = {**DEFAULTS, **data}
    sizes, acts = read_sizes(data), activation(data)
    rope = read_rope(data, sizes.head_dim, partial=ROTATED_PART, is_interleaved=True)
    norm, kind = rms_norms(data, sizes.hidden), AttentionKind()
    no_windows(data)
    has_bias = bool(data.get("attention_bias"))
    layers = []
    for name in layer_names(sizes):
        names = ("post_self_attn_layernorm", "post_mlp_layernorm")
        after = [norm(f"{name}.{one}") if has_norms_after else None for one in names]
        layers.append(
            LayerSpec(
                attention(sizes, f"{name}.self_attn", rope=rope, kind=kind, has_qkv_bias=has_bias),
                BranchNorms(norm(f"{name}.input_layernorm"), after[0]),
                gated_mlp(sizes, f"{name}.mlp", activation=acts, is_merged=True),
                BranchNorms(norm(f"{name}.post_attention_layernorm"), after[1]),
            )
        )
    return model_plan(data, layers, norm("model.norm"))


FAMILIES = (
    Family(architecture="GlmForCausalLM", read=lambda data: _plan(data, has_norms_after=False)),
    Family(architecture="Glm4ForCausalLM", read=lambda data: _plan(data, has_norms_after=True)),
)
