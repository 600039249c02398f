"""Finds the text model in the files of a checkpoint that has towers for images, audio or video."""

from collections.abc import Mapping
from typing import Any, Final

_TOWERS: Final = frozenset(["audio_tower", "multi_modal_projector", "vision_tower", "visual"])
_TEXT_PREFIXES: Final[Mapping[str, str]] = {
    "language_model.model.": "model.",
    "language_model.lm_head.": "lm_head.",
    "model.language_model.": "model.",
}
"""Begin of the names of a text model's tensors, by version of transformers, and of the same names
where the text model stands alone. Names that begin in another way are the same in both."""

DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "gemma3_text": {
        "head_dim": 256,
        "max_position_embeddings": 131072,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 262208,
    },
}
"""Values of fields that published files leave out, by the `model_type` of the text model."""


def text_settings(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a config.json that hold for text.

    They are those of text_config. The top level has the fields that text_config lacks, or all of
    them.
    """
    text = data.get("text_config")
    own = text if isinstance(text, Mapping) else {}
    fields = {**data, **own}
    fields.pop("text_config", None)
    return {**DEFAULTS.get(str(fields.get("model_type")), {}), **fields}


def is_of_tower(name: str) -> bool:
    """Return whether a tensor belongs to a part that text does not pass through."""
    return name.removeprefix("model.").partition(".")[0] in _TOWERS


def own_name(name: str) -> str:
    """Return the name that a tensor of a text model has where it stands alone."""
    for prefix, own in _TEXT_PREFIXES.items():
        if name.startswith(prefix):
            return own + name.removeprefix(prefix)
    return name
