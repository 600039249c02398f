"""Small checkpoints with a text model of a family, and a tower for images that no test runs.

transformers writes them, so the names of their tensors are those of published ones.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from support.checkpoints.checkpoints import EOS_TOKEN_ID, fill_randomly, write_tokenizer
from support.checkpoints.fallback_checkpoints import VOCAB
from support.oracles.family_checkpoints import FULL, MAX_POSITIONS, SHAPE, SLIDING, WINDOW

_TEXT: dict[str, Any] = {
    **SHAPE,
    "vocab_size": VOCAB,
    "bos_token_id": None,
    "eos_token_id": EOS_TOKEN_ID,
    "pad_token_id": None,
}
_TEXT_OF_QWEN2 = {name: value for name, value in _TEXT.items() if name != "head_dim"}
_SECTIONS = {"rope_type": "default", "rope_theta": 1000.0, "mrope_section": [2, 3, 3]}
_TOWER: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "image_size": 28,
    "patch_size": 14,
}
_VISUAL: dict[str, Any] = {
    "depth": 1,
    "hidden_size": 32,
    "num_heads": 2,
    "intermediate_size": 32,
    "out_hidden_size": 64,
}

# Name to (model type, fields of the text, fields of the tower, fields of both).
NESTED_CHECKPOINTS: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "gemma3-vision": (
        "gemma3",
        {
            **_TEXT,
            "query_pre_attn_scalar": 24,
            "sliding_window": WINDOW,
            "layer_types": [SLIDING, FULL, SLIDING],
            "rope_parameters": {
                FULL: {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e4},
                SLIDING: {"rope_type": "default", "rope_theta": 50.0},
            },
        },
        _TOWER,
        {"mm_tokens_per_image": 4},
    ),
    "mistral3": (
        "mistral3",
        {**_TEXT, "model_type": "mistral", "sliding_window": None},
        {**_TOWER, "model_type": "pixtral", "head_dim": 16},
        {"tie_word_embeddings": False},
    ),
    # transformers writes two values of tie_word_embeddings, and one matrix.
    "mistral3-tied": (
        "mistral3",
        {**_TEXT, "model_type": "mistral", "sliding_window": None, "tie_word_embeddings": False},
        {**_TOWER, "model_type": "pixtral", "head_dim": 16},
        {"tie_word_embeddings": True},
    ),
    "qwen2-vl": (
        "qwen2_vl",
        {**_TEXT_OF_QWEN2, "rope_parameters": _SECTIONS},
        {"depth": 1, "embed_dim": 32, "hidden_size": 64, "num_heads": 2},
        {},
    ),
    "qwen2.5-vl": (
        "qwen2_5_vl",
        {
            **_TEXT_OF_QWEN2,
            "rope_parameters": _SECTIONS,
            "use_sliding_window": True,
            "max_window_layers": 1,
            "sliding_window": WINDOW,
        },
        {**_VISUAL, "fullatt_block_indexes": [0]},
        {},
    ),
    "qwen3-vl": (
        "qwen3_vl",
        {**_TEXT, "rope_parameters": {**_SECTIONS, "mrope_interleaved": True}},
        {**_VISUAL, "deepstack_visual_indexes": [0]},
        {"tie_word_embeddings": True},
    ),
}


def make_nested_checkpoint(folder: Path, name: str, *, with_tokenizer: bool = False) -> Path:
    """Write one of NESTED_CHECKPOINTS below `folder` and return its folder."""
    from transformers import AutoConfig, AutoModelForImageTextToText

    model_type, text, tower, fields = NESTED_CHECKPOINTS[name]
    config = AutoConfig.for_model(model_type, text_config=text, vision_config=tower, **fields)
    model = AutoModelForImageTextToText.from_config(config)
    fill_randomly(model, 0.1, seed=0).save_pretrained(folder / name)
    if with_tokenizer:
        write_tokenizer(folder / name, VOCAB, MAX_POSITIONS)
    return folder / name


def rename_tensors(folder: Path, rename: Callable[[str], str]) -> None:
    """Give the tensors in `folder` other names, as another version of transformers has them."""
    path = folder / "model.safetensors"
    save_file({rename(name): tensor for name, tensor in load_file(path).items()}, path)


def change_config(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Write what `change` makes of the content of config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
