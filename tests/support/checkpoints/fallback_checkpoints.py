"""Small checkpoints of architectures that run through transformers, and refused ones.

Each differs from Llama in what the fallback must get right: learned positions, projections around
the decoder, parallel blocks, biases, partial rotation, scales, soft caps, mixed windows, experts.
"""

from pathlib import Path
from typing import Any

from support.checkpoints.checkpoints import EOS_TOKEN_ID, _random_model, write_tokenizer

VOCAB = 512
WINDOW = 9
MAX_POSITIONS = 256

_SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 160,
    "max_position_embeddings": MAX_POSITIONS,
}
_GROUPED = {**_SHAPE, "num_key_value_heads": 2}

# Name to (model type, fields of config.json).
SERVED: dict[str, tuple[str, dict[str, Any]]] = {
    # The scale of the scores is another in every layer.
    "gpt2": ("gpt2", {**_SHAPE, "scale_attn_by_inverse_layer_idx": True}),
    # Embeddings narrower than the decoder, queries scaled before attention.
    "opt": ("opt", {**_SHAPE, "ffn_dim": 160, "word_embed_proj_dim": 32}),
    "gpt-neox": ("gpt_neox", {**_SHAPE, "rotary_pct": 0.25}),
    # A bias behind the last matrix.
    "phi": ("phi", {**_GROUPED, "partial_rotary_factor": 0.5}),
    # Small caps, so that they bend what is small in a random model, too.
    "gemma2": (
        "gemma2",
        {
            **_GROUPED,
            "num_hidden_layers": 4,
            "head_dim": 16,
            "query_pre_attn_scalar": 24,
            "sliding_window": WINDOW,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
        },
    ),
    # Windows in some layers, and rotary frequencies by the kind of layer.
    "gemma3": (
        "gemma3_text",
        {
            **_GROUPED,
            "head_dim": 16,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "qwen2-mixed": (
        "qwen2",
        {
            **_GROUPED,
            "use_sliding_window": True,
            "max_window_layers": 1,
            "sliding_window": WINDOW,
        },
    ),
    "starcoder2": ("starcoder2", {**_GROUPED, "num_hidden_layers": 4, "sliding_window": WINDOW}),
    # Logits have a scale of their own.
    "cohere": ("cohere", {**_GROUPED, "logit_scale": 0.3}),
    "mixtral": ("mixtral", {**_GROUPED, "num_local_experts": 4, "sliding_window": None}),
    "llama": ("llama", _GROUPED),
}


def make_fallback_checkpoint(
    folder: Path, model_type: str, fields: dict[str, Any], *, with_tokenizer: bool = False
) -> Path:
    """Write a checkpoint with random weights into `folder` and return the folder.

    Args:
        folder: Created when missing.
        model_type: As in config.json.
        fields: Of config.json, in the spelling of transformers.
        with_tokenizer: Also write a tokenizer.
    """
    from transformers import AutoConfig

    special = {"bos_token_id": None, "eos_token_id": EOS_TOKEN_ID, "pad_token_id": None}
    config = AutoConfig.for_model(
        model_type, **{"vocab_size": VOCAB, "tie_word_embeddings": False, **special, **fields}
    )
    _random_model(config, 0.1, seed=0).save_pretrained(folder)
    if with_tokenizer:
        write_tokenizer(folder, VOCAB, MAX_POSITIONS)
    return folder


def make_served_checkpoint(folder: Path, name: str, **options: Any) -> Path:
    """Write one of SERVED below `folder` and return its folder."""
    model_type, fields = SERVED[name]
    return make_fallback_checkpoint(folder / name, model_type, fields, **options)
