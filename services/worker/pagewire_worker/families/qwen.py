"""Qwen 2 (Yang et al., 2024) with biases of queries, keys and values, and Qwen 3 (Yang et al.,
2025), which normalises the heads of queries and keys instead."""

from collections.abc import Callable

from pagewire_shared.errors import StartupError
from pagewire_worker.backend.attention import AttentionKind
from pagewire_worker.families.fields import Data, activation, integer
from pagewire_worker.families.nested import NestedFamily
from pagewire_worker.families.parts import (
    Family,
    Sizes,
    attention,
    gated_mlp,
    model_plan,
    pre_norm_layers,
    read_sizes,
    rms_norms,
)
from pagewire_worker.families.plan import AttentionSpec, ModelPlan
from pagewire_worker.families.rope import read_rope
from pagewire_worker.families.specs.rope_spec import RopeSpec
from pagewire_worker.families.windows import (
    FULL,
    SLIDING,
    Windows,
    no_windows,
    window_of,
    windows_by_type,
)

QWEN3_HEAD_DIM = 128

FULL_LAYERS = 28
"""Number of first layers without a window if `max_window_layers` is missing."""

MakeAttention = Callable[[Data, Sizes, str, RopeSpec, AttentionKind], AttentionSpec]


def qwen_windows(data: Data) -> Windows:
    """Return windows of layers from `max_window_layers` on, if `use_sliding_window` is set."""
    if not data.get("use_sliding_window"):
        return no_windows(data)
    window = window_of(data)
    if window is None:
        raise StartupError("config.json: use_sliding_window needs a sliding_window")
    num_full = data.get("max_window_layers", FULL_LAYERS)
    numbers = range(integer(data, "num_hidden_layers"))
    return windows_by_type(data, window, [SLIDING if n >= num_full else FULL for n in numbers])


def _plan(data: Data, sizes: Sizes, make_attention: MakeAttention) -> ModelPlan:
    acts, windows = activation(data), qwen_windows(data)
    rope, norm = read_rope(data, sizes.head_dim), rms_norms(data, sizes.hidden)
    has_mlp_bias = bool(data.get("mlp_bias"))
    layers = pre_norm_layers(
        sizes,
        norm,
        lambda name, index: make_attention(
            data, sizes, name, rope, AttentionKind(window=windows[index])
        ),
        lambda name, _: gated_mlp(sizes, name, activation=acts, has_bias=has_mlp_bias),
    )
    return model_plan(data, layers, norm("model.norm"))


def _attention2(
    data: Data, sizes: Sizes, name: str, rope: RopeSpec, kind: AttentionKind
) -> AttentionSpec:
    return attention(sizes, name, rope=rope, kind=kind, has_qkv_bias=True)


def _attention3(
    data: Data, sizes: Sizes, name: str, rope: RopeSpec, kind: AttentionKind
) -> AttentionSpec:
    has_bias = bool(data.get("attention_bias"))
    return attention(
        sizes,
        name,
        rope=rope,
        kind=kind,
        has_qkv_bias=has_bias,
        has_output_bias=has_bias,
        head_norm=rms_norms(data, sizes.head_dim),
    )


FAMILIES = (
    Family(
        architecture="Qwen2ForCausalLM",
        read=lambda data: _plan(data, read_sizes(data), _attention2),
        gguf=("qwen2",),
    ),
    Family(
        architecture="Qwen3ForCausalLM",
        read=lambda data: _plan(data, read_sizes(data, QWEN3_HEAD_DIM), _attention3),
        gguf=("qwen3",),
    ),
)

_VISION_DEFAULTS = {
    "rms_norm_eps": 1e-5,
    "rope_theta": 1e6,
    "max_position_embeddings": 32768,
    "max_window_layers": 80,
}

NESTED = (
    NestedFamily(
        architecture="Qwen2VLForConditionalGeneration",
        texts={"qwen2_vl_text": "Qwen2ForCausalLM", "qwen2_vl": "Qwen2ForCausalLM"},
        defaults=_VISION_DEFAULTS,
    ),
    NestedFamily(
        architecture="Qwen2_5_VLForConditionalGeneration",
        texts={"qwen2_5_vl_text": "Qwen2ForCausalLM", "qwen2_5_vl": "Qwen2ForCausalLM"},
        defaults=_VISION_DEFAULTS,
    ),
    NestedFamily(
        architecture="Qwen3VLForConditionalGeneration",
        texts={"qwen3_vl_text": "Qwen3ForCausalLM"},
        defaults={"rope_theta": 5e5, "max_position_embeddings": 128000},
    ),
)
