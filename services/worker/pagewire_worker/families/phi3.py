"""Phi-3 (Abdin et al., 2024) and Phi-4: Llama with merged tensors, and a part of each head may stay
as it is."""

from collections.abc import Mapping
from typing import Any

from pagewire_worker.backend.attention import AttentionKind
from pagewire_worker.families.fields import Data, activation
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
from pagewire_worker.families.windows import one_window

DEFAULTS: Mapping[str, Any] = {
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 4096,
    "original_max_position_embeddings": 4096,
}
OLD_NAMES = ("su", "yarn")
"""Names of "longrope" in older checkpoints."""


def _read(data: Data) -> ModelPlan:
    data = {**DEFAULTS, **data}
    sizes, acts, windows = read_sizes(data), activation(data), one_window(data, None)
    settings = dict(rope_settings(data))
    if (settings.get("rope_type") or settings.get("type")) in OLD_NAMES:
        settings["rope_type"] = "longrope"
    rope = read_rope(data, sizes.head_dim, settings=settings, partial=1.0)
    norm = rms_norms(data, sizes.hidden)
    layers = pre_norm_layers(
        sizes,
        norm,
        lambda name, index: attention(
            sizes, name, rope=rope, is_merged=True, kind=AttentionKind(window=windows[index])
        ),
        lambda name, _: gated_mlp(sizes, name, activation=acts, is_merged=True),
    )
    return model_plan(data, layers, norm("model.norm"))


FAMILIES = (Family(architecture="Phi3ForCausalLM", read=_read),)
