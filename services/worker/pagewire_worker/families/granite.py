"""Granite 3 (IBM, 2024): Llama with factors of embeddings, scores, residual and logits."""

from pagewire_worker.backend.attention import AttentionKind
from pagewire_worker.families.fields import Data, activation, number
from pagewire_worker.families.parts import (
    Family,
    attention,
    gated_mlp,
    model_plan,
    pre_norm_layers,
    read_sizes,
    rms_norms,
)
from pagewire_worker.families.plan import LogitsSpec, ModelPlan
from pagewire_worker.families.rope import read_rope
from pagewire_worker.families.windows import no_windows


def _read(data: Data) -> ModelPlan:
    sizes, acts = read_sizes(data), activation(data)
    rope, norm = read_rope(data, sizes.head_dim), rms_norms(data, sizes.hidden)
    no_windows(data)
    kind = AttentionKind(scale=number(data, "attention_multiplier", 1.0))
    has_bias, has_mlp_bias = bool(data.get("attention_bias")), bool(data.get("mlp_bias"))
    divisor = number(data, "logits_scaling", 1.0)
    layers = pre_norm_layers(
        sizes,
        norm,
        lambda name, _: attention(
            sizes, name, rope=rope, kind=kind, has_qkv_bias=has_bias, has_output_bias=has_bias
        ),
        lambda name, _: gated_mlp(sizes, name, activation=acts, has_bias=has_mlp_bias),
    )
    return model_plan(
        data,
        layers,
        norm("model.norm"),
        logits=lambda name: LogitsSpec(name, divisor),
        embedding_multiplier=number(data, "embedding_multiplier", 1.0),
        residual_multiplier=number(data, "residual_multiplier", 1.0),
    )


FAMILIES = (Family(architecture="GraniteForCausalLM", read=_read),)
