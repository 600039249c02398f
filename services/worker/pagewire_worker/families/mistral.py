"""Mistral (Jiang et al., 2023): Llama without biases, and all layers may have one window; Ministral
(Mistral AI, 2024) has windows in some layers, and the queries of Ministral 3 (2025) grow with their
positions."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pagewire_worker.backend.attention import AttentionKind
from pagewire_worker.families.fields import Data, activation, integer, number
from pagewire_worker.families.nested import NestedFamily
from pagewire_worker.families.parts import (
    Family,
    attention,
    gated_mlp,
    model_plan,
    pre_norm_layers,
    read_sizes,
    rms_norms,
)
from pagewire_worker.families.plan import ModelPlan
from pagewire_worker.families.rope import read_rope, rope_settings
from pagewire_worker.families.specs.rope_spec import RopeSpec
from pagewire_worker.families.windows import (
    FULL,
    SLIDING,
    Windows,
    one_window,
    window_of,
    windows_by_type,
)

MINISTRAL3: Mapping[str, Any] = {
    "head_dim": 128,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 262144,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 1e6,
        "factor": 16.0,
        "original_max_position_embeddings": 16384,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.1,
    },
}
"""Values of fields that config.json may leave out."""


def _plan(data: Data, windows: Windows, rope: RopeSpec | None = None) -> ModelPlan:
    sizes, acts = read_sizes(data), activation(data)
    rope = rope or read_rope(data, sizes.head_dim)
    norm = rms_norms(data, sizes.hidden)
    layers = pre_norm_layers(
        sizes,
        norm,
        lambda name, index: attention(
            sizes, name, rope=rope, kind=AttentionKind(window=windows[index])
        ),
        lambda name, _: gated_mlp(sizes, name, activation=acts),
    )
    return model_plan(data, layers, norm("model.norm"))


def _some_windows(data: Data) -> Windows:
    window = window_of(data)
    default = [FULL if window is None else SLIDING] * integer(data, "num_hidden_layers")
    return windows_by_type(data, window, default)


def _read_ministral3(data: Data) -> ModelPlan:
    data = {**MINISTRAL3, **data}
    names = ("llama_4_scaling_beta", "original_max_position_embeddings")
    beta, context = (number(rope_settings(data), name) for name in names)
    rope = read_rope(data, read_sizes(data).head_dim)
    return _plan(data, one_window(data, None), replace(rope, query_growth=(beta, context)))


FAMILIES = (
    Family(architecture="MistralForCausalLM", read=lambda data: _plan(data, one_window(data))),
    Family(architecture="MinistralForCausalLM", read=lambda data: _plan(data, _some_windows(data))),
    Family(architecture="Ministral3ForCausalLM", read=_read_ministral3),
)
NESTED = (
    NestedFamily(
        architecture="Mistral3ForConditionalGeneration",
        texts={"mistral": "MistralForCausalLM", "ministral3": "Ministral3ForCausalLM"},
    ),
)
