"""SmolLM 3 (Hugging Face, 2025): Llama in which every fourth layer has no positions."""

from pagewire_shared.errors import StartupError
from pagewire_worker.backend.attention import AttentionKind
from pagewire_worker.families.fields import Data, activation, integer
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
from pagewire_worker.families.plan import ModelPlan
from pagewire_worker.families.rope import read_rope
from pagewire_worker.families.windows import FULL, SLIDING, Windows, window_of, windows_by_type

THETA = 2e6


def _rotated_layers(data: Data, sizes: Sizes) -> list[bool]:
    """Return which layers rotate queries and keys."""
    found, interval = data.get("no_rope_layers"), integer(data, "no_rope_layer_interval", 4)
    if found is None:
        return [(index + 1) % interval != 0 for index in range(sizes.num_layers)]
    if not isinstance(found, list) or len(found) < sizes.num_layers:
        raise StartupError(f"config.json: no_rope_layers must have {sizes.num_layers} entries")
    return [bool(one) for one in found]


def _windows(data: Data, is_rotated: list[bool]) -> Windows:
    window = window_of(data, None) if data.get("use_sliding_window") else None
    if window is None:
        return (None,) * integer(data, "num_hidden_layers")
    kinds = [FULL if rotates else SLIDING for rotates in is_rotated]
    return windows_by_type(data, window, kinds)


def _read(data: Data) -> ModelPlan:
    sizes, acts = read_sizes(data), activation(data)
    is_rotated = _rotated_layers(data, sizes)
    windows = _windows(data, is_rotated)
    rope = read_rope(data, sizes.head_dim, theta=THETA)
    norm = rms_norms(data, sizes.hidden)
    has_bias, has_mlp_bias = bool(data.get("attention_bias")), bool(data.get("mlp_bias"))
    layers = pre_norm_layers(
        sizes,
        norm,
        lambda name, index: attention(
            sizes,
            name,
            rope=rope if is_rotated[index] else None,
            kind=AttentionKind(window=windows[index]),
            has_qkv_bias=has_bias,
            has_output_bias=has_bias,
        ),
        lambda name, _: gated_mlp(sizes, name, activation=acts, has_bias=has_mlp_bias),
    )
    return model_plan(data, layers, norm("model.norm"), is_tied=True)


FAMILIES = (Family(architecture="SmolLM3ForCausalLM", read=_read),)
