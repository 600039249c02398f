"""GGUF files with the weights of a small checkpoint, written by the package gguf."""

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.quants import quantize
from safetensors.torch import load_file

from pagewire_worker.checkpoint.gguf.index import write_index
from pagewire_worker.convert.gguf_folder import place_of
from support.checkpoints.checkpoints import make_checkpoint
from support.checkpoints.fallback_checkpoints import make_fallback_checkpoint

_SHAPE: dict[str, Any] = {"heads": 4, "kv_heads": 2, "hidden": 64}
_MIXED: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "num_experts_per_tok": 2,
}
_QWEN: dict[str, Any] = {**_MIXED, "moe_intermediate_size": 64, "num_experts": 6}
_GROUPED: dict[str, Any] = {
    **_MIXED,
    "moe_intermediate_size": 64,
    "n_routed_experts": 6,
    "n_group": 3,
    "topk_group": 2,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.5,
}
MIXTURES: dict[str, dict[str, Any]] = {
    "mixtral": {**_MIXED, "num_local_experts": 6, "sliding_window": None},
    "qwen2_moe": {**_QWEN, "shared_expert_intermediate_size": 96},
    "qwen3_moe": {**_QWEN, "head_dim": 32, "norm_topk_prob": True},
    "olmoe": {**_MIXED, "num_experts": 6, "norm_topk_prob": False},
    "glm4_moe": {
        **_GROUPED,
        "head_dim": 32,
        "use_qk_norm": True,
        "attention_bias": True,
        "partial_rotary_factor": 0.5,
    },
}
_LATENT: dict[str, Any] = {
    **_GROUPED,
    "num_key_value_heads": 4,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 32,
    "v_head_dim": 32,
}
LATENTS: dict[str, dict[str, Any]] = {
    "deepseek_v2": {**_LATENT, "q_lora_rank": None, "topk_method": "greedy", "n_group": 1},
    "deepseek_v3": {
        **_LATENT,
        "q_lora_rank": 64,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 1000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 64,
            "mscale": 0.7,
            "mscale_all_dim": 0.7,
        },
    },
}
"""Models whose attention reads latents; as MIXTURES."""
GPT_OSS: dict[str, Any] = {
    **{key: value for key, value in _MIXED.items() if key != "intermediate_size"},
    **{"intermediate_size": 64, "head_dim": 32, "num_local_experts": 6, "sliding_window": 9},
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 1000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "truncate": False,
    },
}
"""Fields of config.json of mixtures of experts by model type, in sizes that blocks of 32 fill."""
_ARCHITECTURES = {
    **{"mixtral": "llama", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe"},
    **{"gpt_oss": "gpt-oss", "glm4_moe": "glm4moe", "olmoe": "olmoe"},
    **{"deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2"},
}
_EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(\w+\.weight)")


def make_source(folder: Path, name: str) -> Path:
    """Write a small checkpoint: gpt_oss, one of MIXTURES, or an architecture without experts."""
    fields = GPT_OSS if name == "gpt_oss" else {**MIXTURES, **LATENTS}.get(name)
    if fields is not None:
        return make_fallback_checkpoint(folder, name, fields, with_tokenizer=True)
    return make_checkpoint(folder, architecture=name, **_SHAPE)


def write_gguf(file: Path, checkpoint: Path, kind: str) -> None:
    """Write a Llama, Qwen2 or Qwen3 checkpoint, with or without experts, as a GGUF file.

    Matrices are of `kind`, such as Q8_0. Vectors and routers stay in float32, as llama.cpp keeps
    them.
    """
    config = json.loads((checkpoint / "config.json").read_text())
    architecture = _ARCHITECTURES.get(config["model_type"], config["model_type"])
    writer = gguf.GGUFWriter(str(file), architecture)
    _add_sizes(writer, config)
    _add_tokenizer(writer, checkpoint, config["vocab_size"])
    model = next(one for one, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(model, config["num_hidden_layers"])
    quantized = gguf.GGMLQuantizationType[kind]
    for name, data in _cut_latents(_with_stacked_experts(checkpoint), config):
        stem, _, last = name.rpartition(".")
        if architecture == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            is_query = name.endswith("q_proj.weight")
            heads = config["num_attention_heads" if is_query else "num_key_value_heads"]
            data = _permuted(data, heads)
        if last == "e_score_correction_bias":
            stem, last = f"{stem}.e_score_correction", "bias"
        stored = f"{names.get_name(stem)}.{last}"
        if name.endswith(".sinks"):
            stored = f"{names.get_name(name)}.weight"
        if stays_plain(name, data):
            writer.add_tensor(stored, data.squeeze() if len(data) == 1 else data)
        else:
            writer.add_tensor(stored, quantize(data, quantized), raw_dtype=quantized)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def stays_plain(name: str, data: np.ndarray) -> bool:
    """Return whether a tensor is not in blocks: vectors, and matrices of routers."""
    plain = ("mlp.gate.weight", "moe.gate.weight", "gate.weight", "router.weight", "bias")
    return data.ndim == 1 or name.endswith(plain)


def _add_sizes(writer: Any, config: dict[str, Any]) -> None:
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    if "kv_lora_rank" in config:
        _add_latents(writer, config)
    else:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(float(config["rope_parameters"]["rope_theta"]))
    if config["model_type"] == "gpt_oss":
        writer.add_sliding_window(config["sliding_window"])
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(64)
    if config["model_type"] in _ARCHITECTURES:
        writer.add_expert_count(6)
        writer.add_expert_used_count(2)
    if "n_routed_experts" in config:
        _add_grouped_experts(writer, config)
    if "moe_intermediate_size" in config:
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if "shared_expert_intermediate_size" in config:
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])


def _add_grouped_experts(writer: Any, config: dict[str, Any]) -> None:
    """As Glm4MoeModel and DeepseekV2Model of llama.cpp's converter."""
    is_sigmoid = config["model_type"] != "deepseek_v2"
    kinds = gguf.ExpertGatingFuncType
    writer.add_expert_gating_func(kinds.SIGMOID if is_sigmoid else kinds.SOFTMAX)
    writer.add_expert_group_count(config["n_group"])
    writer.add_expert_group_used_count(config["topk_group"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_expert_weights_norm(config["norm_topk_prob"])
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    if "kv_lora_rank" not in config:
        writer.add_rope_dimension_count(config["head_dim"] // 2)


def _add_latents(writer: Any, config: dict[str, Any]) -> None:
    rank, turned = config["kv_lora_rank"], config["qk_rope_head_dim"]
    writer.add_rope_dimension_count(turned)
    writer.add_kv_lora_rank(rank)
    writer.add_key_length(rank + turned)
    writer.add_value_length(rank)
    writer.add_key_length_mla(config["qk_nope_head_dim"] + turned)
    writer.add_value_length_mla(config["v_head_dim"])
    if config["q_lora_rank"] is not None:
        writer.add_q_lora_rank(config["q_lora_rank"])
    rope = config["rope_parameters"]
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])


def cut_expanding(data: np.ndarray, config: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return the parts of kv_b_proj as DeepseekV2Model cuts it: [heads, rank, plain] for keys, and
    [heads, values, rank]."""
    heads = data.reshape(config["num_attention_heads"], -1, data.shape[1])
    plain = config["qk_nope_head_dim"]
    return np.ascontiguousarray(heads[:, :plain].swapaxes(1, 2)), heads[:, plain:].copy()


def _cut_latents(
    tensors: dict[str, np.ndarray], config: dict[str, Any]
) -> Iterator[tuple[str, np.ndarray]]:
    for name, data in tensors.items():
        if name.endswith("kv_b_proj.weight"):
            for part, cut in zip("kv", cut_expanding(data, config), strict=True):
                yield name.replace("kv_b_proj", f"{part}_b_proj"), cut
        else:
            yield name, data


def _with_stacked_experts(checkpoint: Path) -> dict[str, np.ndarray]:
    """Return tensors in float32; those of the experts of a layer are one."""
    found: dict[str, np.ndarray] = {}
    experts: dict[str, dict[int, np.ndarray]] = {}
    for name, tensor in load_file(checkpoint / "model.safetensors").items():
        part = _EXPERT.fullmatch(name)
        if part is None:
            found[name] = tensor.float().numpy()
        else:
            experts.setdefault(f"{part[1]}.{part[3]}", {})[int(part[2])] = tensor.float().numpy()
    stacked = {name: np.stack([of[i] for i in sorted(of)]) for name, of in experts.items()}
    return dict(_cut_stacks(found | stacked))


def _cut_stacks(tensors: dict[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield tensors as llama.cpp's converter cuts those of gpt-oss, outputs before inputs."""
    for name, data in tensors.items():
        stem, _, part = name.rpartition(".")
        if not stem.endswith(".experts") or not part.startswith(("gate_up_proj", "down_proj")):
            yield name, data
            continue
        end = "bias" if part.endswith("_bias") else "weight"
        whole = data if end == "bias" else data.swapaxes(1, 2)
        if part.startswith("down_proj"):
            yield f"{stem}.down_proj.{end}", np.ascontiguousarray(whole)
        else:
            yield f"{stem}.gate_proj.{end}", np.ascontiguousarray(whole[:, ::2])
            yield f"{stem}.up_proj.{end}", np.ascontiguousarray(whole[:, 1::2])


def write_blocks(
    target: Path, checkpoint: Path, kind: str, others: Mapping[str, str] | None = None
) -> Path:
    """Write a checkpoint of any family in blocks of `kind`, with its index, and return `target`.

    No GGUF architecture is needed: the index has the names of transformers.

    Args:
        others: Kinds of tensors by the end of their names.
    """
    shutil.copytree(checkpoint, target, ignore=shutil.ignore_patterns("*.safetensors"))
    writer = gguf.GGUFWriter(str(target / "model.gguf"), "llama")
    for name, tensor in load_file(checkpoint / "model.safetensors").items():
        data = tensor.float().numpy()
        if data.ndim == 1:
            writer.add_tensor(name, data)
        else:
            blocks = _kind_of(name, kind, others)
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


def _kind_of(name: str, kind: str, others: Mapping[str, str] | None) -> gguf.GGMLQuantizationType:
    found = (other for end, other in (others or {}).items() if name.endswith(end))
    return gguf.GGMLQuantizationType[next(found, kind)]


def rounded(
    checkpoint: Path, kind: str, others: Mapping[str, str] | None = None
) -> dict[str, np.ndarray]:
    """Return the weights of a checkpoint as the format keeps them, in float32; see write_blocks."""
    values = {
        name: tensor.float().numpy()
        for name, tensor in load_file(checkpoint / "model.safetensors").items()
    }

    config = json.loads((checkpoint / "config.json").read_text())

    def as_kept(name: str, data: np.ndarray) -> np.ndarray:
        if stays_plain(name, data):
            return data
        quantized = _kind_of(name, kind, others)
        if name.endswith("kv_b_proj.weight"):
            key, value = (
                gguf.quants.dequantize(quantize(one, quantized), quantized)
                for one in cut_expanding(data, config)
            )
            return np.concatenate([key.swapaxes(1, 2), value], axis=1).reshape(data.shape)
        # Stacks of gpt-oss have inputs before outputs.
        rows = np.ascontiguousarray(data.swapaxes(1, 2)) if data.ndim == 3 else data
        kept = gguf.quants.dequantize(quantize(rows, quantized), quantized)
        return np.ascontiguousarray(kept.swapaxes(1, 2)) if data.ndim == 3 else kept

    return {name: as_kept(name, data) for name, data in values.items()}
