"""The exported folder in Hugging Face layout: weights, configs, tokenizer and chat template; it
trains and judges nothing.
"""

import json
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from builtin_recipe.conversation import END_OF_TEXT, TURN_END, TURN_START
from builtin_recipe.model.chat_tokenizer import PAD
from builtin_recipe.model.network import Decoder, Shape

MAX_WEIGHT_BYTES: Final = 12_000_000
_PREFIX: Final = "model."

# Every tag strips the white space on both sides, so the text is the same whatever `trim_blocks` and
# `lstrip_blocks` a renderer sets.
CHAT_TEMPLATE: Final = "\n".join(
    (
        "{%- for message in messages -%}",
        "{%- if message['role'] not in ['system', 'user', 'assistant', 'tool'] -%}",
        "{{- raise_exception('The built-in model knows the roles system, user, assistant and tool,"
        " not ' ~ message['role']) -}}",
        "{%- endif -%}",
        # The model was not trained for tools. It can copy, so it repeats the result of a call.
        "{%- set is_result = message['role'] == 'tool' -%}",
        "{{- '" + TURN_START + "' ~ ('user' if is_result else message['role']) ~ '\\n' -}}",
        "{{- 'Copy this list: ' if is_result else '' -}}",
        "{%- if message['content'] is string -%}",
        "{{- message['content'] -}}",
        "{%- elif message['content'] -%}",
        "{%- for part in message['content'] -%}",
        "{{- part['text'] -}}",
        "{%- endfor -%}",
        "{%- endif -%}",
        "{%- for call in message['tool_calls'] or [] -%}",
        "{{- '<tool_call>{\"name\": \"' ~ call['function']['name'] ~ '\", \"arguments\": ' ~"
        " call['function']['arguments'] | tojson ~ '}</tool_call>' -}}",
        "{%- endfor -%}",
        "{{- '" + TURN_END + "\\n' -}}",
        "{%- endfor -%}",
        "{%- if add_generation_prompt -%}",
        "{{- '" + TURN_START + "assistant\\n' -}}",
        "{%- endif -%}",
    )
)


def model_config(shape: Shape, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return config.json of a `Qwen3ForCausalLM`."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": tokenizer.token_to_id(END_OF_TEXT),
        "eos_token_id": tokenizer.token_to_id(TURN_END),
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden_size,
        "initializer_range": 0.02,
        "intermediate_size": shape.mlp_size,
        "max_position_embeddings": shape.max_positions,
        "model_type": "qwen3",
        "num_attention_heads": shape.num_heads,
        "num_hidden_layers": shape.num_layers,
        "num_key_value_heads": shape.num_kv_heads,
        "pad_token_id": tokenizer.token_to_id(PAD),
        "rms_norm_eps": 1e-6,
        "rope_theta": shape.rope_theta,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": shape.vocab_size,
    }


def generation_config(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return generation_config.json: likely tokens only, ended by the end of a turn.

    So small a model goes astray after one unlikely token; these values keep stories varied.
    """
    return {
        "bos_token_id": tokenizer.token_to_id(END_OF_TEXT),
        "do_sample": True,
        "eos_token_id": tokenizer.token_to_id(TURN_END),
        "min_p": 0.5,
        "pad_token_id": tokenizer.token_to_id(PAD),
        "temperature": 0.7,
    }


def tokenizer_config(shape: Shape) -> dict[str, Any]:
    """Return tokenizer_config.json; the template is also there for readers that know no other
    place.
    """
    return {
        "add_prefix_space": False,
        "bos_token": None,
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": TURN_END,
        "model_max_length": shape.max_positions,
        "pad_token": PAD,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": None,
    }


def _write_json(content: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def export(network: Decoder, tokenizer: Tokenizer, folder: Path) -> int:
    """Write the folder and return the size of the weights file in bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    weights: dict[str, Tensor] = {
        _PREFIX + name: tensor.detach().to(torch.bfloat16).contiguous()
        for name, tensor in network.state_dict().items()
    }
    path = folder / "model.safetensors"
    save_file(weights, path, metadata={"format": "pt"})
    path.chmod(0o644)  # save_file leaves it readable to its owner only
    _write_json(model_config(network.shape, tokenizer), folder / "config.json")
    _write_json(generation_config(tokenizer), folder / "generation_config.json")
    _write_json(tokenizer_config(network.shape), folder / "tokenizer_config.json")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    tokenizer.save(str(folder / "tokenizer.json"))
    size = path.stat().st_size
    assert size <= MAX_WEIGHT_BYTES, f"{size} bytes of weights"
    return size


def load_export(folder: Path) -> tuple[Decoder, Tokenizer]:
    """Return the network, in float32 with the exported values, and the tokenizer of a folder."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    shape = Shape(
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=config["num_attention_heads"],
        num_kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        mlp_size=config["intermediate_size"],
        max_positions=config["max_position_embeddings"],
        rope_theta=config["rope_theta"],
    )
    network = Decoder(shape)
    weights = load_file(folder / "model.safetensors")
    network.load_state_dict(
        {name.removeprefix(_PREFIX): tensor.float() for name, tensor in weights.items()}
    )
    return network, Tokenizer.from_file(str(folder / "tokenizer.json"))


@torch.no_grad()
def largest_difference(folder: Path, ids: Tensor) -> float:
    """Return the largest gap between our float32 logits and those of transformers for ids [1,
    length].
    """
    from transformers import AutoModelForCausalLM

    network, _ = load_export(folder)
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    gap: Tensor = (reference(ids).logits - network(ids)).abs().max()
    return float(gap)
