"""StarCoder 2 (Lozhkov et al., 2024): layer norms, biases, and an MLP without a gate."""

from pagewire_worker.backend.attention import AttentionKind
from pagewire_worker.families.fields import Data, activation, number
from pagewire_worker.families.parts import (
    Family,
    attention,
    model_plan,
    plain_mlp,
    pre_norm_layers,
    read_sizes,
)
from pagewire_worker.families.plan import ModelPlan, NormSpec
from pagewire_worker.families.rope import read_rope
from pagewire_worker.families.windows import one_window

EPSILON = 1e-5


def _read(data: Data) -> ModelPlan:
    sizes, windows = read_sizes(data), one_window(data, None)
    acts = activation(data, default="gelu_pytorch_tanh")
    rope, epsilon = read_rope(data, sizes.head_dim), number(data, "norm_epsilon", EPSILON)
    has_bias = bool(data.get("use_bias", True))

    def norm(name: str) -> NormSpec:
        return NormSpec(name=name, size=sizes.hidden, epsilon=epsilon, is_centered=True)

    layers = pre_norm_layers(
        sizes,
        norm,
        lambda name, index: attention(
            sizes,
            name,
            rope=rope,
            kind=AttentionKind(window=windows[index]),
            has_qkv_bias=has_bias,
            has_output_bias=has_bias,
        ),
        lambda name, _: plain_mlp(sizes, name, ("c_fc", "c_proj"), acts, has_bias),
    )
    return model_plan(data, layers, norm("model.norm"), is_tied=True)


FAMILIES = (Family(architecture="Starcoder2ForCausalLM", read=_read),)
