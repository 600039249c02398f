"""OLMoE (Muennighoff et al., 2024): experts in every layer, and norms of all queries and keys of a
token together."""

from pagewire_worker.families.expert_parts import gated_experts, num_experts, softmax_router
from pagewire_worker.families.fields import Data, UnsupportedModelError, activation
from pagewire_worker.families.parts import (
    Family,
    attention,
    model_plan,
    pre_norm_layers,
    read_sizes,
    rms_norms,
)
from pagewire_worker.families.plan import ExpertsSpec, ModelPlan, NormSpec
from pagewire_worker.families.rope import read_rope
from pagewire_worker.families.windows import no_windows


def _read(data: Data) -> ModelPlan:
    data = {"rms_norm_eps": 1e-5, "num_experts_per_tok": 8, **data}
    if data.get("clip_qkv") is not None:
        raise UnsupportedModelError("config.json: clip_qkv is not supported")
    no_windows(data)
    sizes, acts = read_sizes(data), activation(data)
    rope, norm = read_rope(data, sizes.head_dim), rms_norms(data, sizes.hidden)
    count, has_bias = num_experts(data, 64), bool(data.get("attention_bias"))
    is_normalised = bool(data.get("norm_topk_prob"))

    def head_norm(name: str) -> NormSpec:
        num_heads = sizes.num_heads if name.endswith("q_norm") else sizes.num_kv_heads
        return rms_norms(data, num_heads * sizes.head_dim)(name)

    layers = pre_norm_layers(
        sizes,
        norm,
        lambda name, _: attention(
            sizes,
            name,
            rope=rope,
            has_qkv_bias=has_bias,
            has_output_bias=has_bias,
            head_norm=head_norm,
        ),
        lambda name, _: ExpertsSpec(
            router=softmax_router(data, sizes, f"{name}.gate", count, is_normalised=is_normalised),
            experts=gated_experts(
                sizes, f"{name}.experts", count=count, size=sizes.inner, activation=acts
            ),
        ),
    )
    return model_plan(data, layers, norm("model.norm"))


FAMILIES = (Family(architecture="OlmoeForCausalLM", read=_read, has_experts=True, gguf=("olmoe",)),)
