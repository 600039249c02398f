"""GLM-4.5 and later (GLM Team, 2025): experts chosen by sigmoids with a bias, and a shared one."""

from collections.abc import Mapping
from typing import Any

from pagewire_worker.families.expert_parts import (
    gated_experts,
    grouped_router,
    layers_beyond,
    num_experts,
    shared_mlp,
)
from pagewire_worker.families.fields import Data, activation, integer
from pagewire_worker.families.parts import (
    Family,
    attention,
    gated_mlp,
    model_plan,
    pre_norm_layers,
    read_sizes,
    rms_norms,
)
from pagewire_worker.families.plan import ExpertsSpec, MlpSpec, ModelPlan
from pagewire_worker.families.rope import read_rope
from pagewire_worker.families.windows import no_windows

DEFAULTS: Mapping[str, Any] = {"rms_norm_eps": 1e-5, "max_position_embeddings": 131072}
ROTATED_PART = 0.5


def _read(data: Data) -> ModelPlan:
    data = {**DEFAULTS, **data}
    sizes, acts = read_sizes(data), activation(data)
    rope = read_rope(data, sizes.head_dim, partial=ROTATED_PART)
    norm, has_bias = rms_norms(data, sizes.hidden), bool(data.get("attention_bias"))
    no_windows(data)
    num_dense = int(data.get("first_k_dense_replace", 1))
    count, size = num_experts(data), integer(data, "moe_intermediate_size")

    def mlp(name: str, index: int) -> MlpSpec | ExpertsSpec:
        if index < num_dense:
            return gated_mlp(sizes, name, activation=acts)
        shared_size = size * integer(data, "n_shared_experts", 1)
        return ExpertsSpec(
            router=grouped_router(data, sizes, f"{name}.gate", count),
            experts=gated_experts(
                sizes, f"{name}.experts", count=count, size=size, activation=acts
            ),
            shared=shared_mlp(sizes, f"{name}.shared_experts", shared_size, acts),
        )

    layers = pre_norm_layers(
        sizes,
        norm,
        lambda name, _: attention(
            sizes,
            name,
            rope=rope,
            has_qkv_bias=has_bias,
            head_norm=rms_norms(data, sizes.head_dim) if data.get("use_qk_norm") else None,
        ),
        mlp,
    )
    return model_plan(data, layers, norm("model.norm"), **layers_beyond(data))


FAMILIES = (
    Family(architecture="Glm4MoeForCausalLM", read=_read, has_experts=True, gguf=("glm4moe",)),
)
