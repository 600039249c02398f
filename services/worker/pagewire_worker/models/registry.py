"""Reads the config.json of native models. models/variants.py says which decoder computes each."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pagewire_shared.model_files.config import read_config
from pagewire_worker.checkpoint.model_config import (
    ModelConfig,
    Traits,
    parse_model_config,
)
from pagewire_worker.checkpoint.window import UnsupportedModelError, mistral_window, qwen_window
from pagewire_worker.models.forms import LOGITS, CheckpointForm, form_of

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
    form = native_form(data)
    for name, traits in TRAITS.items():
        if form.architecture.startswith(name.removesuffix(LOGITS)):
            config = parse_model_config(data, name, traits)
            # Without a matrix for logits, that of the embeddings stands in its place, unused.
            return config if form.has_logits else replace(config, is_tied=True)
    raise AssertionError("a form has traits")


def native_form(data: Mapping[str, Any]) -> CheckpointForm:
    """Return the form of a native model. Raises UnsupportedModelError for other architectures."""
    form = form_of(data, [name.removesuffix(LOGITS) for name in TRAITS])
    if form is not None:
        return form
    names = data.get("architectures") or []
    shown = ", ".join(map(str, names)) if names else "none"
    raise UnsupportedModelError(
        f"config.json: architecture {shown} is not supported, only {', '.join(TRAITS)}",
        field="model",
    )
