"""gpt-oss (OpenAI, 2025): experts with biases, windows in every second layer, attention sinks."""

from collections.abc import Mapping
from typing import Any, Final

from pagewire_worker.backend.attention import AttentionKind
from pagewire_worker.checkpoint.expert_stacks import ExpertStacks
from pagewire_worker.families.expert_parts import gated_experts, num_experts, softmax_router
from pagewire_worker.families.fields import Data, number
from pagewire_worker.families.parts import (
    Family,
    attention,
    model_plan,
    pre_norm_layers,
    read_sizes,
    rms_norms,
)
from pagewire_worker.families.plan import AttentionSpec, ClampedSwiglu, ExpertsSpec, ModelPlan
from pagewire_worker.families.rope import read_rope, rope_settings
from pagewire_worker.families.windows import FULL, SLIDING, window_of, windows_by_type

DEFAULTS: Final[Mapping[str, Any]] = {
    "num_experts_per_tok": 4,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 131072,
}
ROPE: Final[Mapping[str, Any]] = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}
"""Where config.json has no settings."""

THETA, WINDOW, HEAD_DIM, EXPERTS = 150000.0, 128, 64, 128
LIMIT, SLOPE = 7.0, 1.702


def _read(data: Data) -> ModelPlan:
    data = {**DEFAULTS, **data}
    sizes, count = read_sizes(data, HEAD_DIM), num_experts(data, EXPERTS)
    pattern = [FULL if index % 2 else SLIDING for index in range(sizes.num_layers)]
    windows = windows_by_type(data, window_of(data, WINDOW), pattern)
    settings = rope_settings(data) or ROPE
    rope = read_rope(data, sizes.head_dim, settings=settings, theta=THETA)
    norm = rms_norms(data, sizes.hidden, rounds_late=True)
    has_bias = bool(data.get("attention_bias", True))
    clamped = ClampedSwiglu(
        number(data, "swiglu_limit", LIMIT), number(data, "swiglu_alpha", SLOPE)
    )

    def attend(name: str, index: int) -> AttentionSpec:
        return attention(
            sizes,
            name,
            rope=rope,
            has_qkv_bias=has_bias,
            has_output_bias=has_bias,
            kind=AttentionKind(window=windows[index], has_sinks=True),
            sinks="sinks",
        )

    def experts(name: str, _: int) -> ExpertsSpec:
        return ExpertsSpec(
            router=softmax_router(
                data, sizes, f"{name}.router", count, is_normalised=True, has_bias=True
            ),
            experts=gated_experts(
                sizes,
                f"{name}.experts",
                count=count,
                size=sizes.inner,
                activation="silu",
                has_bias=True,
                clamped=clamped,
            ),
        )

    layers = pre_norm_layers(sizes, norm, attend, experts)
    return model_plan(data, layers, norm("model.norm"), stacks=ExpertStacks(count))


FAMILIES = (
    Family(architecture="GptOssForCausalLM", read=_read, gguf=("gpt-oss",), has_experts=True),
)
