"""DeepSeek V2 (DeepSeek-AI, 2024), V3 and R1, and models of their form, as Kimi K2.

Attention reads latents, and most layers have experts.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from pagewire_shared.errors import StartupError
from pagewire_worker.backend.attention import AttentionKind
from pagewire_worker.families.expert_parts import (
    gated_experts,
    grouped_router,
    layers_beyond,
    num_experts,
    shared_mlp,
)
from pagewire_worker.families.fields import Data, UnsupportedModelError, activation, integer
from pagewire_worker.families.parts import (
    Family,
    Sizes,
    gated_mlp,
    model_plan,
    pre_norm_layers,
    read_sizes,
    rms_norms,
)
from pagewire_worker.families.plan import (
    AttentionSpec,
    ExpertsSpec,
    LatentSpec,
    LinearSpec,
    MlpSpec,
    ModelPlan,
    NormSpec,
    RouterSpec,
)
from pagewire_worker.families.rope import read_rope
from pagewire_worker.families.specs.rope_spec import RopeSpec, yarn_scale

V2_DEFAULTS: Final[Mapping[str, Any]] = {
    "max_position_embeddings": 2048,
    "first_k_dense_replace": 0,
    "q_lora_rank": 1536,
    "n_shared_experts": 2,
}
V3_DEFAULTS: Final[Mapping[str, Any]] = {
    "max_position_embeddings": 4096,
    "first_k_dense_replace": 3,
    "q_lora_rank": 1536,
    "n_shared_experts": 1,
    "n_group": 8,
    "topk_group": 4,
}
NOT_READ: Final[Mapping[str, Any]] = {
    "attention_bias": False,
    "mlp_bias": False,
    "moe_layer_freq": 1,
    "ep_size": 1,
}
"""Fields, and the only value of each that is computed."""

MakeRouter = Callable[[Data, Sizes, str, int], RouterSpec]
"""(config.json, sizes, name, experts) -> router."""


def _v2_router(data: Data, sizes: Sizes, name: str, count: int) -> RouterSpec:
    """A softmax; of groups the one with the greatest single score is the best."""
    _check(data, {"scoring_func": "softmax", "norm_topk_prob": False})
    method = data.get("topk_method", "greedy")
    if method not in ("greedy", "group_limited_greedy"):
        raise UnsupportedModelError(f"config.json: topk_method {method!r} is not supported here")
    groups = {"n_group": 1, "topk_group": 1} if method == "greedy" else {}
    return grouped_router(
        {"norm_topk_prob": False, **data, **groups},
        sizes,
        name,
        count,
        score="softmax",
        has_choice_bias=False,
        group_best=1,
    )


def _v3_router(data: Data, sizes: Sizes, name: str, count: int) -> RouterSpec:
    """Sigmoids with a bias; groups go by their two best scores."""
    _check(data, {"scoring_func": "sigmoid", "topk_method": "noaux_tc"})
    return grouped_router({"routed_scaling_factor": 2.5, **data}, sizes, name, count)


def _read(data: Data, make_router: MakeRouter, *, is_interleaved: bool) -> ModelPlan:
    _check(data, NOT_READ)
    sizes, acts = read_sizes(data, head_dim=1), activation(data)
    norm = rms_norms(data, sizes.hidden)
    make_attention = _attention_maker(data, sizes, is_interleaved=is_interleaved)
    num_dense = int(data["first_k_dense_replace"])
    count = num_experts(data) if num_dense < sizes.num_layers else 0
    size = integer(data, "moe_intermediate_size", 1)

    def mlp(name: str, index: int) -> MlpSpec | ExpertsSpec:
        if index < num_dense:
            return gated_mlp(sizes, name, activation=acts)
        shared_size = size * integer(data, "n_shared_experts")
        return ExpertsSpec(
            router=make_router(data, sizes, f"{name}.gate", count),
            experts=gated_experts(
                sizes, f"{name}.experts", count=count, size=size, activation=acts
            ),
            shared=shared_mlp(sizes, f"{name}.shared_experts", shared_size, acts),
        )

    layers = pre_norm_layers(sizes, norm, lambda name, _: make_attention(name), mlp)
    return model_plan(data, layers, norm("model.norm"), **layers_beyond(data))


def _attention_maker(
    data: Data, sizes: Sizes, *, is_interleaved: bool
) -> Callable[[str], AttentionSpec]:
    """Return what makes the attention of a layer from its name."""
    rank, rotated = integer(data, "kv_lora_rank", 512), integer(data, "qk_rope_head_dim", 64)
    plain, value = integer(data, "qk_nope_head_dim", 128), integer(data, "v_head_dim", 128)
    if sizes.num_kv_heads != sizes.num_heads:
        raise StartupError(
            f"config.json: num_key_value_heads ({sizes.num_kv_heads}) must be "
            f"num_attention_heads ({sizes.num_heads}): all heads share a latent"
        )
    query_size, key_size = sizes.num_heads * (plain + rotated), rank + rotated
    low = None if data["q_lora_rank"] is None else integer(data, "q_lora_rank")
    rope = read_rope(data, rotated, is_interleaved=is_interleaved)
    scale = (plain + rotated) ** -0.5 * _stretch(rope) ** 2
    is_cut = bool(data.get("is_kv_b_proj_cut"))  # of folders that are made of GGUF files

    def make(name: str) -> AttentionSpec:
        query = ("q_proj", query_size) if low is None else ("q_a_proj", low)
        parts = (query, ("kv_a_proj_with_mqa", key_size))
        return AttentionSpec(
            num_heads=sizes.num_heads,
            num_kv_heads=1,
            head_dim=key_size,
            qkv=LinearSpec(
                parts=tuple((f"{name}.{part}", size) for part, size in parts),
                num_inputs=sizes.hidden,
            ),
            output=LinearSpec(
                parts=((f"{name}.o_proj", sizes.hidden),), num_inputs=sizes.num_heads * value
            ),
            rope=rope,
            kind=AttentionKind(scale=scale),
            latent=LatentSpec(
                rank=rank,
                plain_dim=plain,
                value_dim=value,
                norm=_norm(f"{name}.kv_a_layernorm", rank),
                expand=f"{name}.kv_b_proj",
                absorbed=(f"{name}.k_b_proj", f"{name}.v_b_proj") if is_cut else None,
                query_norm=None if low is None else _norm(f"{name}.q_a_layernorm", low),
                query_up=None
                if low is None
                else LinearSpec(parts=((f"{name}.q_b_proj", query_size),), num_inputs=low),
            ),
        )

    return make


def _norm(name: str, size: int) -> NormSpec:
    # transformers leaves the epsilon of config.json out here.
    return NormSpec(name=name, size=size, epsilon=1e-6)


def _stretch(rope: RopeSpec) -> float:
    """Return the factor that queries, and keys, have for a context beyond the first one."""
    multiplier = rope.settings.get("mscale_all_dim")
    return yarn_scale(rope.settings["factor"], multiplier) if multiplier else 1.0


def _check(data: Data, only: Mapping[str, Any]) -> None:
    for name, value in only.items():
        if data.get(name, value) not in (value, None):
            raise UnsupportedModelError(
                f"config.json: {name} {data[name]!r} is not supported here, only {value!r}"
            )


def _read_v2(data: Data) -> ModelPlan:
    return _read({**V2_DEFAULTS, **data}, _v2_router, is_interleaved=True)


def _read_v3(data: Data) -> ModelPlan:
    is_interleaved = bool(data.get("rope_interleave", True))
    return _read({**V3_DEFAULTS, **data}, _v3_router, is_interleaved=is_interleaved)


FAMILIES = (
    Family(
        architecture="DeepseekV2ForCausalLM",
        read=_read_v2,
        has_experts=True,
        gguf=("deepseek2",),
    ),
    Family(architecture="DeepseekV3ForCausalLM", read=_read_v3, has_experts=True),
)
