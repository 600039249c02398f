"""Makes a config.json of the metadata of a GGUF file, and names of transformers of its tensors."""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from pagewire_shared.errors import StartupError
from pagewire_worker.convert.gguf_experts import EXPERTS, ExpertNames
from pagewire_worker.convert.gguf_grouped_experts import yarn_multiplier
from pagewire_worker.families.registry import GGUF

Metadata = Mapping[str, Any]

_ENDS: Final = {
    "output.weight": "lm_head.weight",
    "output_norm.weight": "model.norm.weight",
    "token_embd.weight": "model.embed_tokens.weight",
}
_PARTS: Final = {
    "attn_k": "self_attn.k_proj",
    "attn_k_norm": "self_attn.k_norm",
    "attn_norm": "input_layernorm",
    "attn_output": "self_attn.o_proj",
    "attn_q": "self_attn.q_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_v": "self_attn.v_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_up": "mlp.up_proj",
}
_LAYER = re.compile(r"blk\.(\d+)\.")
_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")

_LLAMA3: Final = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
"""Of every Llama 3.1 to 3.3; files hold the factors that follow from it, one per frequency."""
_TOLERANCE: Final = 1e-3

_YARN: Final = {
    "factor": "factor",
    "original_context_length": "original_max_position_embeddings",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
}
_YARN_LEFT_OUT: Final = {
    "attn_factor": 1.0,
    "yarn_ext_factor": 1.0,
    "yarn_attn_factor": 1.0,
    "yarn_log_multiplier": 0.0,
}
"""Keys, and the only value of each that is read."""


def tensor_name(name: str) -> str | None:
    """Return the name that transformers has for a tensor; None for an unknown one."""
    if name in _ENDS:
        return _ENDS[name]
    found = _BLOCK.fullmatch(name)
    if found is None or found[2] not in _PARTS:
        return None
    return f"model.layers.{found[1]}.{_PARTS[found[2]]}.{found[3]}"


def layer_of(name: str) -> int:
    """Return the number of the layer that a tensor belongs to; -1 for none."""
    found = _LAYER.match(name)
    return -1 if found is None else int(found[1])


def config_of(
    metadata: Metadata,
    *,
    is_tied: bool,
    rope_factors: Sequence[float] | None,
    names: Collection[str] = (),
) -> dict[str, Any]:
    """Return the config.json of a model.

    Args:
        metadata: Of the file, by name.
        is_tied: Whether the output layer is the embedding.
        rope_factors: What each rotary frequency is divided by, if the file says that.
        names: Of the tensors of the file.

    Raises:
        StartupError: The architecture, or something that it does, is not converted.
    """
    name = metadata.get("general.architecture")
    has_experts = bool(metadata.get(f"{name}.expert_count"))
    architecture = _architecture(name, has_experts=has_experts)

    def value(key: str, default: Any = None) -> Any:
        found = metadata.get(f"{name}.{key}", default)
        if found is None:
            raise StartupError(f"the GGUF file does not say {name}.{key}")
        if isinstance(found, list):
            raise StartupError(f"GGUF files with {name}.{key} per layer are not converted")
        return found

    num_heads, hidden = value("attention.head_count"), value("embedding_length")
    head_dim = value("attention.key_length", hidden // num_heads)
    experts = EXPERTS[str(name)] if has_experts else None
    has_windows = experts is not None and "sliding_window" in experts.fields
    if value("attention.sliding_window", 0) and not has_windows:
        raise StartupError("GGUF files of models with attention windows are not converted")
    may_differ = experts is not None and experts.rotates_a_part
    if value("rope.dimension_count", head_dim) != head_dim and not may_differ:
        raise StartupError("GGUF files of models that rotate a part of a head are not converted")
    theta = float(value("rope.freq_base", 10000.0))
    return {
        "architectures": [architecture],
        "model_type": name,
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
        "vocab_size": len(metadata.get("tokenizer.ggml.tokens", ())),
        "hidden_size": hidden,
        # Files of models in which all layers have experts may leave it out.
        "intermediate_size": value("feed_forward_length", hidden if has_experts else None),
        "num_hidden_layers": value("block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": value("attention.head_count_kv", num_heads),
        "head_dim": head_dim,
        "rms_norm_eps": float(value("attention.layer_norm_rms_epsilon")),
        "rope_theta": theta,
        "rope_scaling": _rope_scaling(metadata, str(name), theta, head_dim, rope_factors, experts),
        "max_position_embeddings": value("context_length"),
        "tie_word_embeddings": is_tied,
        **(experts.config(value, names) if experts is not None else {}),
    }


def _architecture(name: Any, *, has_experts: bool) -> str:
    """Return the name that transformers has for an architecture of llama.cpp."""
    found = GGUF.get((str(name), has_experts))
    if found is None:
        with_experts = " with experts" if has_experts else ""
        known = ", ".join(one for one, experts in GGUF if experts == has_experts)
        raise StartupError(
            f"GGUF files of the architecture {name!r}{with_experts} are not converted; {known} are"
        )
    return found


def eos_of(metadata: Metadata) -> list[int]:
    """Return the tokens that end an answer."""
    keys = ("eos_token_id", "eot_token_id")
    found = [metadata.get(f"tokenizer.ggml.{key}") for key in keys]
    ends = {int(one) for one in found if one is not None}
    experts = EXPERTS.get(str(metadata.get("general.architecture")))
    if experts is not None and experts.ends:
        tokens = metadata.get("tokenizer.ggml.tokens", ())
        ends |= {number for number, token in enumerate(tokens) if token in experts.ends}
    return sorted(ends)


def _rope_scaling(
    metadata: Metadata,
    name: str,
    theta: float,
    head_dim: int,
    factors: Sequence[float] | None,
    experts: ExpertNames | None,
) -> dict[str, Any] | None:
    kind = metadata.get(f"{name}.rope.scaling.type", "none")
    if kind == "yarn":
        prefix, unsaid = f"{name}.rope.scaling.", dict(experts.rope) if experts else {}
        if name == "deepseek2":
            metadata = dict(metadata)
            unsaid |= yarn_multiplier(metadata.pop(f"{prefix}yarn_log_multiplier", None))
        return _yarn(metadata, prefix, unsaid)
    if kind == "linear":
        return {"rope_type": "linear", "factor": float(metadata[f"{name}.rope.scaling.factor"])}
    if kind != "none":
        raise StartupError(f"GGUF files with rotary scaling {kind!r} are not converted")
    if factors is None:
        return None
    scaling = {"rope_type": "llama3", "factor": round(float(max(factors)), 3), **_LLAMA3}
    expected = [_llama3_factor(theta ** (-2 * i / head_dim), scaling) for i in range(head_dim // 2)]
    is_equal = len(expected) == len(factors) and all(
        math.isclose(one, other, rel_tol=_TOLERANCE)
        for one, other in zip(expected, factors, strict=True)
    )
    if not is_equal:
        raise StartupError("the GGUF file scales rotary frequencies in a way of its own")
    return scaling


def _yarn(metadata: Metadata, prefix: str, unsaid: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scaling by YaRN; `unsaid` has fields that the file does not say."""
    found = {key: metadata.get(prefix + key) for key in (*_YARN, *_YARN_LEFT_OUT)}
    for key in ("factor", "original_context_length"):
        if found[key] is None:
            raise StartupError(f"the GGUF file does not say {prefix}{key}")
    for key, default in _YARN_LEFT_OUT.items():
        if found[key] not in (None, default):
            raise StartupError(f"GGUF files with {prefix}{key} are not converted")
    fields = {name: found[key] for key, name in _YARN.items() if found[key] is not None}
    return {"rope_type": "yarn", **fields, **unsaid}


def _llama3_factor(frequency: float, scaling: Mapping[str, Any]) -> float:
    """Return what a frequency is divided by (transformers, _compute_llama3_parameters)."""
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] * frequency / (2 * math.pi)
    if turns > high:
        return 1.0
    if turns < low:
        return float(scaling["factor"])
    smooth = (turns - low) / (high - low)
    return float(1 / ((1 - smooth) / scaling["factor"] + smooth))
