"""Reads the config.json of native models. models/variants.py says which decoder computes each."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pagewire_shared.model_files.config import read_config
from pagewire_worker.checkpoint.model_config import (
    ModelConfig,
    Traits,
    parse_model_config,
)
from pagewire_worker.checkpoint.window import UnsupportedModelError, mistral_window, qwen_window

TRAITS: Mapping[str, Traits] = {
    "LlamaForCausalLM": Traits(),
    "MistralForCausalLM": Traits(has_qkv_bias=False, has_output_bias=False, window=mistral_window),
    "Qwen2ForCausalLM": Traits(has_qkv_bias=True, has_output_bias=False, window=qwen_window),
    "Qwen3ForCausalLM": Traits(has_qk_norm=True, default_head_dim=128, window=qwen_window),
}


def read_model_config(folder: Path) -> ModelConfig:
    """Return the shape of the checkpoint in `folder`. Raises StartupError naming the fault."""
    return native_config(read_config(folder))


def native_config(data: Mapping[str, Any]) -> ModelConfig:
    """Return the shape in the content of a config.json.

    Raises:
        UnsupportedModelError: The native decoder does not compute this model.
        StartupError: The content is broken.
    """
    architecture = _architecture(data)
    return parse_model_config(data, architecture, TRAITS[architecture])


def _architecture(data: Mapping[str, Any]) -> str:
    names = data.get("architectures") or []
    for name in names:
        if name in TRAITS:
            return str(name)
    shown = ", ".join(map(str, names)) if names else "none"
    raise UnsupportedModelError(
        f"config.json: architecture {shown} is not supported, only {', '.join(TRAITS)}",
        field="model",
    )
