"""Small checkpoints with random weights, written by transformers in the Hugging Face layout.

Weights are drawn with std 0.1, biases and norms too, so that outputs depend on every block of the
KV cache: at the default 0.02 a foreign block left half of the outputs unchanged.
"""

import json
from pathlib import Path
from typing import Any

LLAMA3_ROPE: dict[str, Any] = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR_ROPE: dict[str, Any] = {"rope_type": "linear", "factor": 2.0}
ROPE_PRESETS = {"llama3": LLAMA3_ROPE, "linear": LINEAR_ROPE}

ARCHITECTURES = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
EOS_TOKEN_ID = 2

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_checkpoint(
    folder: Path,
    *,
    architecture: str = "LlamaForCausalLM",
    sharded: bool = False,
    tied: bool = False,
    rope_scaling: str | dict[str, Any] | None = None,
    hidden: int = 64,
    layers: int = 2,
    vocab: int = 512,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int | None = None,
    intermediate: int | None = None,
    max_position_embeddings: int = 2048,
    dtype: str = "float32",
    std: float = 0.1,
    with_tokenizer: bool = True,
    seed: int = 0,
    config: dict[str, Any] | None = None,
) -> Path:
    """Write a checkpoint into `folder` (created when missing) and return the folder.

    Args:
        folder: Where config.json, *.safetensors, tokenizer.json and the chat template go.
        architecture: One of ARCHITECTURES.
        sharded: Several safetensors files and an index.
        tied: The output layer is the embedding.
        rope_scaling: None, "llama3", "linear" or the parameters themselves.
        hidden, layers, vocab, heads, kv_heads, head_dim, intermediate: The shape; head_dim defaults
            to hidden / heads, intermediate to 3 * hidden.
        max_position_embeddings: Length of the context.
        dtype: Of the stored weights.
        std: Of all weights.
        with_tokenizer: Also write tokenizer.json, tokenizer_config.json and a chat template.
        seed: Equal seeds give equal files.
        config: Further fields of config.json, such as attention_bias.
    """
    folder.mkdir(parents=True, exist_ok=True)
    import torch

    model_config = _config(
        architecture,
        {
            "hidden_size": hidden,
            "intermediate_size": intermediate or 3 * hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": head_dim or hidden // heads,
            "vocab_size": vocab,
            "max_position_embeddings": max_position_embeddings,
            "tie_word_embeddings": tied,
            "initializer_range": std,
            "bos_token_id": None,
            "eos_token_id": EOS_TOKEN_ID,
            "pad_token_id": None,
            **(config or {}),
        },
        rope_scaling,
    )
    model = _random_model(model_config, std, seed).to(getattr(torch, dtype))
    num_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
    model.save_pretrained(folder, max_shard_size=num_bytes // 3 if sharded else num_bytes + 1)
    if with_tokenizer:
        write_tokenizer(folder, vocab, max_position_embeddings)
    return folder


def _config(architecture: str, shape: dict[str, Any], rope: str | dict[str, Any] | None) -> Any:
    from transformers import LlamaConfig, Qwen2Config, Qwen3Config

    classes = {
        "LlamaForCausalLM": LlamaConfig,
        "Qwen2ForCausalLM": Qwen2Config,
        "Qwen3ForCausalLM": Qwen3Config,
    }
    scaling = ROPE_PRESETS[rope] if isinstance(rope, str) else rope
    parameters = {"rope_type": "default", "rope_theta": 10000.0, **(scaling or {})}
    return classes[architecture](**shape, rope_parameters=parameters)


def _random_model(config: Any, std: float, seed: int) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return fill_randomly(AutoModelForCausalLM.from_config(config, dtype=torch.float32), std, seed)


def fill_randomly(model: Any, std: float, seed: int) -> Any:
    """Draw all weights of a model of transformers, and return it."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    model.tie_weights()
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator) * std
            is_gain = ("norm" in name or ".ln_" in name) and not name.endswith(".bias")
            parameter.copy_(noise + 1.0 if is_gain else noise)
        for name, buffer in sorted(model.named_buffers()):
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(torch.randn(buffer.shape, generator=generator) * std)
    return model.eval()


def write_tokenizer(folder: Path, vocab: int, max_length: int = 2048) -> None:
    """Write a byte-level BPE tokenizer with ids below `vocab`, which is at least 259.

    Ids 0 to 2 are the special tokens, 3 to 258 the bytes, further ones pairs of letters.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*SPECIAL_TOKENS, *alphabet]
    if vocab < len(tokens):
        raise ValueError(f"a byte-level tokenizer needs {len(tokens)} ids, got {vocab}")
    letters = "etaoinshrdlucmwfgypbvkjxqz"
    pairs = [("Ġ", letter) for letter in letters] + [(a, b) for a in letters for b in letters]
    merges = pairs[: vocab - len(tokens)]
    tokens += [a + b for a, b in merges]
    ids = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "eos_token": "<|im_end|>",
                "pad_token": "<|endoftext|>",
                "bos_token": None,
                "model_max_length": max_length,
                "chat_template": CHAT_TEMPLATE,
            },
            indent=1,
        )
    )
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
