"""Writes the small model and the adapters beside this file, the adapters with PEFT itself.

    python tests/support/adapters/write.py

needs an environment of its own with torch, transformers, safetensors, accelerate and peft 0.21.
Each adapter gets a folder, and in expected.safetensors the logits that PEFT computes in float32.
Weights are random.
"""

import shutil
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

FOLDER = Path(__file__).parent
TOKENS = [(7 * position + 3) % 128 for position in range(24)]
SHAPE: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
}
LISTED = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTERS: dict[str, dict[str, Any]] = {
    "listed": {"r": 4, "lora_alpha": 12, "target_modules": LISTED},
    # Ranks and factors of their own, and the root of the rank below the factor.
    "patterns": {
        "r": 3,
        "lora_alpha": 5,
        "use_rslora": True,
        "target_modules": r".*\.self_attn\.(q|v)_proj",
        "rank_pattern": {"v_proj": 6},
        "alpha_pattern": {"layers.1.self_attn.q_proj": 2},
    },
    "one-layer": {
        "r": 2,
        "lora_alpha": 4,
        "target_modules": ["up_proj", "o_proj"],
        "layers_to_transform": [1],
    },
    "all-linear": {"r": 1, "lora_alpha": 2, "target_modules": "all-linear"},
    # PEFT also writes copies of both matrices.
    "outer": {"r": 5, "lora_alpha": 9, "target_modules": ["embed_tokens", "lm_head", "k_proj"]},
}
TIED = FOLDER / "tied"
"""A model with one matrix for the embedding, which has a factor, and for capped logits."""

TIED_SETTINGS = {
    "r": 3,
    "lora_alpha": 4,
    "use_rslora": True,
    "target_modules": ["embed_tokens", "lm_head", "v_proj"],
    "ensure_weight_tying": True,
}


def plain_model(*, is_tied: bool = False) -> PreTrainedModel:
    """Return a model with random weights; logits depend on every layer."""
    torch.manual_seed(0)
    model: PreTrainedModel = Qwen3ForCausalLM(Qwen3Config(**SHAPE))
    if is_tied:
        shape = {**SHAPE, "tie_word_embeddings": True, "query_pre_attn_scalar": 32}
        model = Gemma2ForCausalLM(Gemma2Config(**shape, final_logit_softcapping=20.0))
    model = model.float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(1.0 if parameter.ndim == 1 else 0.0, 0.15)
            parameter.copy_(parameter.half().float())
    return model


def write_adapter(folder: Path, model: PreTrainedModel, settings: dict[str, Any]) -> None:
    """Write an adapter of `model`, and its logits."""
    adapted = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **settings))
    generator = torch.Generator().manual_seed(len(folder.name))
    with torch.no_grad():
        for key, parameter in adapted.named_parameters():
            if "lora_" in key:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.15)
        logits = adapted.eval()(torch.tensor([TOKENS])).logits[0]
    shutil.rmtree(folder, ignore_errors=True)
    adapted.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    save_file({"logits": logits.contiguous()}, folder / "expected.safetensors")


def main() -> None:
    """Write all folders."""
    for folder, is_tied in ((FOLDER / "model", False), (TIED / "model", True)):
        shutil.rmtree(folder, ignore_errors=True)
        plain_model(is_tied=is_tied).half().save_pretrained(folder)
    for name, settings in ADAPTERS.items():
        write_adapter(FOLDER / name, plain_model(), settings)
    write_adapter(TIED / "adapter", plain_model(is_tied=True), TIED_SETTINGS)


if __name__ == "__main__":
    main()
