"""Ministral (Mistral AI, 2024): Mistral with windows in some layers."""

from pagewire_worker.backend.attention import AttentionKind
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
from pagewire_worker.families.plan import ModelPlan
from pagewire_worker.families.rope import read_rope
from pagewire_worker.families.windows import FULL, SLIDING, window_of, windows_by_type


def _read(data: Data) -> ModelPlan:
    sizes, acts, window = read_sizes(data), activation(data), window_of(data)
    default = [FULL if window is None else SLIDING] * integer(data, "num_hidden_layers")
    windows = windows_by_type(data, window, default)
    rope, norm = read_rope(data, sizes.head_dim), rms_norms(data, sizes.hidden)
    layers = pre_norm_layers(
        sizes,
        norm,
        lambda name, index: attention(
            sizes, name, rope=rope, kind=AttentionKind(window=windows[index])
        ),
        lambda name: gated_mlp(sizes, name, activation=acts),
    )
    return model_plan(data, layers, norm("model.norm"))


FAMILIES = (Family(architecture="MinistralForCausalLM", read=_read),)
