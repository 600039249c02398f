"""Mistral (Jiang et al., 2023): Llama without biases, and all layers may have one window."""

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
from pagewire_worker.families.rope import read_rope
from pagewire_worker.families.windows import one_window


def _read(data: Data) -> ModelPlan:
    sizes, acts, windows = read_sizes(data), activation(data), one_window(data)
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


FAMILIES = (Family(architecture="MistralForCausalLM", read=_read),)
