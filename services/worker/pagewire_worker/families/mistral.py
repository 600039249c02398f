"""Mistral (Jiang et al., 2023): Llama without biases, and all layers may have one window; Ministral
(Mistral AI, 2024) has windows in some layers."""

from pagewire_worker.backend.attention import AttentionKind
from pagewire_worker.families.fields import Data, activation, integer
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
from pagewire_worker.families.rope import read_rope
from pagewire_worker.families.windows import (
    FULL,
    SLIDING,
    Windows,
    one_window,
    window_of,
    windows_by_type,
)


def _plan(data: Data, windows: Windows) -> ModelPlan:
    sizes, acts = read_sizes(data), activation(data)
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


def _some_windows(data: Data) -> Windows:
    window = window_of(data)
    default = [FULL if window is None else SLIDING] * integer(data, "num_hidden_layers")
    return windows_by_type(data, window, default)


FAMILIES = (
    Family(architecture="MistralForCausalLM", read=lambda data: _plan(data, one_window(data))),
    Family(architecture="MinistralForCausalLM", read=lambda data: _plan(data, _some_windows(data))),
)
NESTED = (
    NestedFamily(
        architecture="Mistral3ForConditionalGeneration",
        texts={"mistral": "MistralForCausalLM"},
        towers=("vision_tower", "multi_modal_projector"),
    ),
)
