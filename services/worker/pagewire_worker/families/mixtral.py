"""Mixtral (Jiang et al., 2024): Mistral with experts in every layer."""

from pagewire_worker.backend.attention import AttentionKind
from pagewire_worker.families.expert_parts import gated_experts, num_experts, softmax_router
from pagewire_worker.families.fields import Data, activation
from pagewire_worker.families.parts import (
    Family,
    attention,
    model_plan,
    pre_norm_layers,
    read_sizes,
    rms_norms,
)
from pagewire_worker.families.plan import ExpertsSpec, ModelPlan
from pagewire_worker.families.rope import read_rope
from pagewire_worker.families.windows import one_window

THETA = 1e6


def _read(data: Data) -> ModelPlan:
    data = {"num_experts_per_tok": 2, "rms_norm_eps": 1e-5, **data}
    sizes, acts, windows = read_sizes(data), activation(data), one_window(data, None)
    rope, norm = read_rope(data, sizes.head_dim, theta=THETA), rms_norms(data, sizes.hidden)
    count = num_experts(data, 8)

    def experts(name: str, _: int) -> ExpertsSpec:
        name = name.removesuffix("mlp") + "block_sparse_moe"
        return ExpertsSpec(
            router=softmax_router(data, sizes, f"{name}.gate", count, is_normalised=True),
            experts=gated_experts(
                sizes,
                f"{name}.experts",
                count=count,
                size=sizes.inner,
                activation=acts,
                parts=("w1", "w3", "w2"),
            ),
        )

    layers = pre_norm_layers(
        sizes,
        norm,
        lambda name, index: attention(
            sizes, name, rope=rope, kind=AttentionKind(window=windows[index])
        ),
        experts,
    )
    return model_plan(data, layers, norm("model.norm"))


FAMILIES = (
    Family(architecture="MixtralForCausalLM", read=_read, gguf=("llama",), has_experts=True),
)
