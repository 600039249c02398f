"""Llama (Touvron et al., 2023)."""

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
from pagewire_worker.families.windows import no_windows


def _read(data: Data) -> ModelPlan:
    sizes, acts = read_sizes(data), activation(data)
    rope, norm = read_rope(data, sizes.head_dim), rms_norms(data, sizes.hidden)
    has_bias, has_mlp_bias = bool(data.get("attention_bias")), bool(data.get("mlp_bias"))
    no_windows(data)
    layers = pre_norm_layers(
        sizes,
        norm,
        lambda name, _: attention(
            sizes, name, rope=rope, has_qkv_bias=has_bias, has_output_bias=has_bias
        ),
        lambda name, _: gated_mlp(sizes, name, activation=acts, has_bias=has_mlp_bias),
    )
    return model_plan(data, layers, norm("model.norm"))


LLAMA = Family(architecture="LlamaForCausalLM", read=_read, gguf=("llama",))

FAMILIES = (LLAMA,)
