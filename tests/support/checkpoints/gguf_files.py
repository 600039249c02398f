"""GGUF files with the weights of a small checkpoint, written by the package gguf."""

import json
import shutil
from pathlib import Path

import gguf
import numpy as np
from gguf.quants import quantize
from safetensors.torch import load_file

from pagewire_worker.checkpoint.gguf.index import write_index
from pagewire_worker.convert.gguf_folder import place_of


def write_gguf(file: Path, checkpoint: Path, kind: str) -> None:
    """Write a Llama, Qwen2 or Qwen3 checkpoint as a GGUF file with matrices of `kind`, as Q8_0.

    Vectors stay in float32, as llama.cpp keeps them.
    """
    config = json.loads((checkpoint / "config.json").read_text())
    architecture = config["model_type"]
    writer = gguf.GGUFWriter(str(file), architecture)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(10000.0)
    _add_tokenizer(writer, checkpoint, config["vocab_size"])
    model = gguf.MODEL_ARCH[architecture.upper()]
    names = gguf.get_tensor_name_map(model, config["num_hidden_layers"])
    quantized = gguf.GGMLQuantizationType[kind]
    for name, tensor in load_file(checkpoint / "model.safetensors").items():
        stem, _, last = name.rpartition(".")
        data = tensor.float().numpy()
        if architecture == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            is_query = name.endswith("q_proj.weight")
            heads = config["num_attention_heads" if is_query else "num_key_value_heads"]
            data = _permuted(data, heads)
        stored = f"{names.get_name(stem)}.{last}"
        if data.ndim == 1:
            writer.add_tensor(stored, data)
        else:
            writer.add_tensor(stored, quantize(data, quantized), raw_dtype=quantized)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_blocks(target: Path, checkpoint: Path, kind: str) -> Path:
    """Write a checkpoint of any family in blocks of `kind`, with its index, and return `target`.

    No GGUF architecture is needed: the index has the names of transformers.
    """
    shutil.copytree(checkpoint, target, ignore=shutil.ignore_patterns("*.safetensors"))
    blocks = gguf.GGMLQuantizationType[kind]
    writer = gguf.GGUFWriter(str(target / "model.gguf"), "llama")
    for name, tensor in load_file(checkpoint / "model.safetensors").items():
        data = tensor.float().numpy()
        if data.ndim == 1:
            writer.add_tensor(name, data)
        else:
            writer.add_tensor(name, quantize(data, blocks), raw_dtype=blocks)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    places = {one.name: place_of(one) for one in gguf.GGUFReader(target / "model.gguf").tensors}
    write_index(target / "model.gguf.index.json", target / "model.gguf", places)
    return target


def _permuted(weights: np.ndarray, num_heads: int) -> np.ndarray:
    """As LlamaModel.permute of llama.cpp's convert_hf_to_gguf.py."""
    halves = weights.reshape(num_heads, 2, len(weights) // num_heads // 2, weights.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weights.shape))


def _add_tokenizer(writer: gguf.GGUFWriter, checkpoint: Path, size: int) -> None:
    data = json.loads((checkpoint / "tokenizer.json").read_text())
    added = {one["id"]: one["content"] for one in data["added_tokens"]}
    known = {number: token for token, number in data["model"]["vocab"].items()} | added
    tokens = [known.get(number, f"[unused{number}]") for number in range(size)]
    kinds = [gguf.TokenType.CONTROL if i in added else gguf.TokenType.NORMAL for i in range(size)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    merges = data["model"]["merges"]
    writer.add_token_merges([one if isinstance(one, str) else " ".join(one) for one in merges])
    writer.add_eos_token_id(2)
    writer.add_chat_template("{% for m in messages %}<{{ m.content }}>{% endfor %}")


def rounded(checkpoint: Path, kind: str) -> dict[str, np.ndarray]:
    """Return the weights of a checkpoint as the format keeps them, in float32."""
    quantized = gguf.GGMLQuantizationType[kind]
    return {
        name: tensor.float().numpy()
        if tensor.ndim == 1
        else gguf.quants.dequantize(quantize(tensor.float().numpy(), quantized), quantized)
        for name, tensor in load_file(checkpoint / "model.safetensors").items()
    }
