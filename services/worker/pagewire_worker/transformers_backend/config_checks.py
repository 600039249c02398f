"""Checks, before weights are read, whether transformers may run a checkpoint for this worker."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pagewire_shared.errors import StartupError
from pagewire_worker.transformers_backend.refusal import Refusal


def read_config(folder: Path, data: Mapping[str, Any], *, is_changed: bool = False) -> Any:
    """Return the configuration as transformers reads it. Raises StartupError or Refusal.

    Args:
        data: Content of config.json.
        is_changed: Values of `data` differ from the file, and count.
    """
    import transformers
    from transformers import CONFIG_MAPPING, AutoConfig

    # This package logs one line and its own errors; a progress bar is noise in a log.
    logging: Any = transformers.logging
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if not data.get("architectures"):
        raise StartupError("config.json: architectures is missing", field="model")
    model_type = data.get("model_type")
    if model_type not in CONFIG_MAPPING:
        brings_code = "; it brings code, which is never run" if data.get("auto_map") else ""
        raise Refusal(f"transformers has no model type {model_type!r}{brings_code}")
    if is_changed:
        return CONFIG_MAPPING[str(model_type)].from_dict(dict(data))
    return AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)


def check_class(config: Any, architecture: str) -> None:
    """Raise Refusal unless transformers has a fitting decoder for `architecture`."""
    from transformers import AutoModelForCausalLM

    text = config.get_text_config()
    if getattr(text, "quantization_config", None):
        raise Refusal("its weights are quantized (quantization_config)")
    if getattr(config, "is_encoder_decoder", False) or getattr(text, "is_encoder_decoder", False):
        raise Refusal("it is an encoder-decoder; only decoders are supported")
    try:
        found = AutoModelForCausalLM._model_mapping[type(config)]
    except KeyError:
        raise Refusal("transformers has no causal language model for it") from None
    classes: tuple[Any, ...] = tuple(found) if isinstance(found, list | tuple) else (found,)
    one = next((each for each in classes if each.__name__ == architecture), None)
    if one is None:
        raise Refusal(f"transformers would run it as {classes[0].__name__}, which it is not")
    if getattr(one, "_is_stateful", False) or _recurrent_layers(text):
        raise Refusal(
            "its layers keep a state of their own (state-space, convolution or linear attention)"
        )
    if not one._can_set_attn_implementation():
        alibi = "ALiBi, or otherwise " if _uses_alibi(text) else ""
        raise Refusal(
            f"it attends in code of its own ({alibi}outside of transformers' attention interface)"
        )


def check_context(config: Any, max_model_len: int) -> None:
    """Raise StartupError if rotary frequencies would depend on the longest sequence of a batch.

    "longrope" has two sets of frequencies, and keys cached with one set do not fit the other.
    """
    text = config.get_text_config()
    for settings in _rope_settings(getattr(text, "rope_parameters", None)):
        if (settings.get("rope_type") or settings.get("type")) != "longrope":
            continue
        limit = settings.get("original_max_position_embeddings") or getattr(
            text, "original_max_position_embeddings", None
        )
        if limit is not None and max_model_len > limit:
            raise StartupError(
                f"--max-model-len: at most {limit} with the rotary embedding 'longrope', "
                f"got {max_model_len}",
                field="max_model_len",
            )


def _rope_settings(parameters: object) -> list[Mapping[str, Any]]:
    """Return the settings of all kinds of layers."""
    if not isinstance(parameters, Mapping):
        return []
    return [parameters, *(value for value in parameters.values() if isinstance(value, Mapping))]


def _recurrent_layers(text: Any) -> bool:
    kinds = {str(kind) for kind in getattr(text, "layer_types", None) or ()}
    return any(word in kind for kind in kinds for word in ("linear", "mamba", "recurrent", "conv"))


def _uses_alibi(text: Any) -> bool:
    nested = getattr(text, "attn_config", None)
    return bool(
        text.model_type == "bloom"
        or getattr(text, "alibi", False)
        or getattr(nested, "alibi", False)
    )
