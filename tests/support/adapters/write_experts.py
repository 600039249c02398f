"""Writes the models with experts below `experts`, and an adapter of each, with PEFT itself.

    python tests/support/adapters/write_experts.py

needs an environment of its own with torch, transformers 5, safetensors, accelerate and peft 0.21.
Adapters are of parameters that hold all experts of a layer (`target_parameters`). In
expected.safetensors are the logits that PEFT computes in float32. Weights are random.
"""

import shutil
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import (
    GptOssConfig,
    GptOssForCausalLM,
    OlmoeConfig,
    OlmoeForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
)

FOLDER = Path(__file__).parent / "experts"
TOKENS = [(7 * position + 3) % 128 for position in range(24)]
SHAPE: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 256,
    "num_experts_per_tok": 2,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
# Of OLMoE both matrices have 64 inputs or outputs, so no shape tells which is which.
MODELS: dict[str, tuple[PreTrainedConfig, type[PreTrainedModel]]] = {
    "olmoe": (OlmoeConfig(**SHAPE, intermediate_size=32, num_experts=6), OlmoeForCausalLM),
    "gpt-oss": (
        GptOssConfig(**SHAPE, intermediate_size=64, num_local_experts=4, head_dim=32),
        GptOssForCausalLM,
    ),
}
ADAPTERS: dict[str, dict[str, Any]] = {
    "olmoe": {"r": 3, "lora_alpha": 4, "target_modules": ["q_proj", "o_proj"]},
    "gpt-oss": {"r": 2, "lora_alpha": 3, "use_rslora": True, "target_modules": []},
}
PARAMETERS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]


def plain_model(name: str) -> PreTrainedModel:
    """Return a model with random weights; logits depend on every layer."""
    config, make = MODELS[name]
    torch.manual_seed(0)
    model = make(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(1.0 if parameter.ndim == 1 else 0.0, 0.15)
            parameter.copy_(parameter.half().float())
    return model


def main() -> None:
    """Write all folders."""
    for name, settings in ADAPTERS.items():
        folder = FOLDER / name
        shutil.rmtree(folder, ignore_errors=True)
        plain_model(name).half().save_pretrained(folder / "model")
        config = LoraConfig(task_type="CAUSAL_LM", target_parameters=PARAMETERS, **settings)
        adapted = get_peft_model(plain_model(name), config)
        generator = torch.Generator().manual_seed(len(name))
        with torch.no_grad():
            for key, parameter in adapted.named_parameters():
                if "lora_" in key:
                    parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.15)
            logits = adapted.eval()(torch.tensor([TOKENS])).logits[0]
        adapted.save_pretrained(folder / "adapter")
        (folder / "adapter" / "README.md").unlink(missing_ok=True)
        save_file({"logits": logits.contiguous()}, folder / "adapter" / "expected.safetensors")


if __name__ == "__main__":
    main()
