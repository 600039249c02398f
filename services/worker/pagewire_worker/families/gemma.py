"""Gemma 2 (Gemma Team, 2024) and the text of Gemma 3 (2025): norms on both sides of each part, with
weights that are stored less 1, embeddings scaled by the root of their size, and windows in most
layers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pagewire_shared.model_files.text_model import DEFAULTS as TEXT_DEFAULTS
from pagewire_worker.backend.attention import AttentionKind
from pagewire_worker.families.fields import (
    Data,
    UnsupportedModelError,
    activation,
    integer,
    number,
    optional_number,
)
from pagewire_worker.families.nested import NestedFamily
from pagewire_worker.families.parts import (
    Family,
    attention,
    gated_mlp,
    layer_names,
    model_plan,
    read_sizes,
    rms_norms,
)
from pagewire_worker.families.plan import (
    BranchNorms,
    LayerSpec,
    LogitsSpec,
    ModelPlan,
    NormSpec,
)
from pagewire_worker.families.rope import read_rope
from pagewire_worker.families.specs.rope_spec import RopeSpec
from pagewire_worker.families.windows import FULL, SLIDING, Windows, window_of, windows_by_type

DEFAULTS: Mapping[str, Any] = {
    "head_dim": 256,
    "query_pre_attn_scalar": 256,
    "tie_word_embeddings": True,
    "max_position_embeddings": 8192,
}
GEMMA2: Mapping[str, Any] = {
    **DEFAULTS,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
}
GEMMA3: Mapping[str, Any] = {
    **DEFAULTS,
    **TEXT_DEFAULTS["gemma3_text"],
}
"""Values of fields that published config.json files leave out."""

GLOBAL_THETA, LOCAL_THETA = 1e6, 1e4

Ropes = Sequence[RopeSpec]
HeadNorm = Callable[[str], NormSpec]


def _norms(data: Data, size: int) -> Callable[[str], NormSpec]:
    return rms_norms(data, size, offset=1.0, rounds_late=True)


def _layers(
    data: Data, windows: Windows, ropes: Ropes, head_norm: HeadNorm | None
) -> list[LayerSpec]:
    sizes, acts = read_sizes(data), activation(data, "hidden_activation", "gelu_pytorch_tanh")
    norm, has_bias = _norms(data, sizes.hidden), bool(data.get("attention_bias"))
    scale = number(data, "query_pre_attn_scalar") ** -0.5
    softcap = optional_number(data, "attn_logit_softcapping")
    layers = []
    for name, window, rope in zip(layer_names(sizes), windows, ropes, strict=True):
        heads = attention(
            sizes,
            f"{name}.self_attn",
            rope=rope,
            kind=AttentionKind(window, scale, softcap),
            has_qkv_bias=has_bias,
            has_output_bias=has_bias,
            head_norm=head_norm,
        )
        of_attention = ("input_layernorm", "post_attention_layernorm")
        of_mlp = ("pre_feedforward_layernorm", "post_feedforward_layernorm")
        layers.append(
            LayerSpec(
                heads,
                BranchNorms(*(norm(f"{name}.{one}") for one in of_attention)),
                gated_mlp(sizes, f"{name}.mlp", activation=acts),
                BranchNorms(*(norm(f"{name}.{one}") for one in of_mlp)),
            )
        )
    return layers


def _plan(data: Data, layers: Sequence[LayerSpec]) -> ModelPlan:
    if data.get("use_bidirectional_attention"):
        raise UnsupportedModelError("config.json: use_bidirectional_attention is not supported")
    softcap, hidden = optional_number(data, "final_logit_softcapping"), data["hidden_size"]
    return model_plan(
        data,
        layers,
        _norms(data, hidden)("model.norm"),
        logits=lambda name: LogitsSpec(name, softcap=softcap),
        embedding_multiplier=hidden**0.5,
        has_narrow_multiplier=True,
    )


def _read2(data: Data) -> ModelPlan:
    data = {**GEMMA2, **data}
    num_layers = integer(data, "num_hidden_layers")
    pattern = [FULL if index % 2 else SLIDING for index in range(num_layers)]
    rope = read_rope(data, read_sizes(data).head_dim)
    windows = windows_by_type(data, window_of(data), pattern)
    return _plan(data, _layers(data, windows, [rope] * num_layers, None))


def _read3(data: Data) -> ModelPlan:
    if "text_config" in data:
        raise UnsupportedModelError("config.json: only the text of such a model has a decoder")
    data = {**GEMMA3, **data}
    num_layers, head_dim = integer(data, "num_hidden_layers"), read_sizes(data).head_dim
    interval = integer(data, "sliding_window_pattern", 6)
    pattern = [SLIDING if (index + 1) % interval else FULL for index in range(num_layers)]
    windows = windows_by_type(data, window_of(data), pattern)
    ropes = {is_local: _rope3(data, head_dim, is_local) for is_local in (False, True)}
    by_layer = [ropes[window is not None] for window in windows]
    return _plan(data, _layers(data, windows, by_layer, _norms(data, head_dim)))


def _rope3(data: Data, head_dim: int, is_local: bool) -> RopeSpec:
    """Return the rotation of layers with a window, or of the others; in either spelling."""
    nested = (data.get("rope_parameters") or {}).get(SLIDING if is_local else FULL) or {}
    theta = data.get("rope_local_base_freq") if is_local else data.get("rope_theta")
    scaling = {} if is_local else data.get("rope_scaling") or {}
    default = LOCAL_THETA if is_local else GLOBAL_THETA
    settings = {"rope_theta": theta or default, **nested, **scaling}
    return read_rope(data, head_dim, settings=settings)


FAMILIES = (
    Family(architecture="Gemma2ForCausalLM", read=_read2),
    Family(architecture="Gemma3ForCausalLM", read=_read3),
)
NESTED = (
    NestedFamily(
        architecture="Gemma3ForConditionalGeneration",
        texts={"gemma3_text": "Gemma3ForCausalLM"},
    ),
)
