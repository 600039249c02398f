"""Checkpoints that neither way runs: one line each, naming the architecture and the reason."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2Config

from pagewire_shared.errors import StartupError
from pagewire_worker.config import WorkerConfig
from pagewire_worker.loading.loader import load_replica
from pagewire_worker.transformers_backend.config_checks import check_class
from pagewire_worker.transformers_backend.refusal import Refusal
from support.checkpoints.fallback_checkpoints import MAX_POSITIONS, make_fallback_checkpoint
from support.oracles.nested_checkpoints import make_nested_checkpoint

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "vocab_size": 300,
}
EXPERTS = {"moe_intermediate_size": 16, "num_local_experts": 2, "num_experts_per_tok": 1}

# Model type, fields, and what the one line names.
REFUSED = {
    "bloom": ("bloom", {"hidden_size": 32, "n_layer": 2, "n_head": 4}, "BloomForCausalLM", "ALiBi"),
    "mpt": ("mpt", {"d_model": 32, "n_layers": 2, "n_heads": 4}, "MptForCausalLM", "ALiBi"),
    "mamba": (
        "mamba",
        {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
        "MambaForCausalLM",
        "state of their own",
    ),
    "falcon": (
        "falcon",
        {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4},
        "FalconForCausalLM",
        "attention interface",
    ),
    "sinks": (
        "gpt_oss",
        {**SMALL, **EXPERTS, "num_key_value_heads": 2, "head_dim": 8},
        "GptOssForCausalLM",
        "s_aux",
    ),
    "latent": (
        "glm4_moe_lite",
        {
            **SMALL,
            "mlp_layer_types": ["dense", "dense"],
            "kv_lora_rank": 8,
            "q_lora_rank": 8,
            "qk_nope_head_dim": 8,
            "qk_rope_head_dim": 8,
            "v_head_dim": 8,
        },
        "Glm4MoeLiteForCausalLM",
        "different size",
    ),
    "selected latents": (
        "deepseek_v32",
        {
            **SMALL,
            "first_k_dense_replace": 2,
            "kv_lora_rank": 8,
            "q_lora_rank": 8,
            "qk_nope_head_dim": 8,
            "qk_rope_head_dim": 8,
            "v_head_dim": 8,
        },
        "DeepseekV32ForCausalLM",
        "different size",
    ),
    "chunked": (
        "llama4_text",
        {
            **SMALL,
            **EXPERTS,
            "intermediate_size_mlp": 32,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "attention_chunk_size": 16,
        },
        "Llama4ForCausalLM",
        "neither causal nor a sliding window",
    ),
}


def change_config(folder, **fields):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def fails(folder, **settings):
    settings = {"max_model_len": 32, "cpu_threads": 1, **settings}
    with pytest.raises(StartupError) as caught:
        load_replica(WorkerConfig(model=str(folder), **settings))
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_architectures_that_are_refused(name, tmp_path):
    model_type, fields, architecture, reason = REFUSED[name]
    folder = make_fallback_checkpoint(tmp_path, model_type, {"vocab_size": 300, **fields})
    message = fails(folder, model_impl="transformers")
    assert architecture in message
    assert reason in message


@pytest.mark.parametrize(
    ("model_type", "architecture"),
    [("t5", "T5ForConditionalGeneration"), ("bart", "BartForConditionalGeneration")],
)
def test_encoder_decoders_are_refused(model_type, architecture, gpt2):
    config = {"model_type": model_type, "architectures": [architecture], "is_encoder_decoder": True}
    (gpt2 / "config.json").write_text(json.dumps(config))
    message = fails(gpt2)
    assert architecture in message
    assert "encoder-decoder" in message


def test_models_for_images_run_where_transformers_has_a_causal_model(tmp_path):
    """Its image tokens attend in both directions, its text as the check at the start asks."""
    folder = make_nested_checkpoint(tmp_path, "gemma3-vision")
    settings = {"max_model_len": 32, "cpu_threads": 1, "model_impl": "transformers"}
    load_replica(WorkerConfig(model=str(folder), **settings))
    message = fails(make_nested_checkpoint(tmp_path, "qwen2-vl"), model_impl="transformers")
    assert "Qwen2VLForConditionalGeneration cannot be served" in message


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"architectures": ["GPT2ForSequenceClassification"]}, "GPT2ForSequenceClassification"),
        ({"architectures": []}, "architectures"),
        ({"model_type": "own", "auto_map": {"AutoConfig": "own.C"}}, "never run"),
        ({"vocab_size": 500}, "lm_head.weight with shape [512, 64]"),
        ({"n_layer": 4, "num_hidden_layers": 4}, "h.3"),
        ({"n_layer": 2, "num_hidden_layers": 2}, "h.2"),
        ({"n_head": 5, "num_attention_heads": 5}, "num_heads"),
        ({"activation_function": "nothing"}, "nothing"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config"),
    ],
)
def test_a_config_that_does_not_do(fields, named, gpt2):
    change_config(gpt2, **fields)
    assert named in fails(gpt2)


def test_quantized_weights_of_a_nested_text_model_are_refused():
    config = GPT2Config()
    config.quantization_config = {"quant_method": "awq"}
    with pytest.raises(Refusal, match="quantized"):
        check_class(config, "GPT2LMHeadModel")


def test_a_missing_tensor(gpt2):
    tensors = load_file(gpt2 / "model.safetensors")
    name = next(name for name in tensors if "h.1.mlp.c_fc.weight" in name)
    del tensors[name]
    save_file(tensors, gpt2 / "model.safetensors", {"format": "pt"})
    assert "h.1.mlp.c_fc.weight" in fails(gpt2)


def test_an_unexpected_tensor(gpt2):
    tensors = load_file(gpt2 / "model.safetensors")
    tensors["transformer.h.1.mlp.gate.weight"] = torch.zeros(3)
    save_file(tensors, gpt2 / "model.safetensors", {"format": "pt"})
    assert "h.1.mlp.gate.weight" in fails(gpt2)


def test_truncated_weights(gpt2):
    path = gpt2 / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    assert fails(gpt2).startswith(f"{path} is truncated or no safetensors file: ")


def test_pickles_are_not_read(gpt2):
    (gpt2 / "model.safetensors").rename(gpt2 / "pytorch_model.bin")
    message = fails(gpt2)
    assert "pytorch_model.bin" in message
    assert "pickle" in message


def test_an_adapter_is_no_model(gpt2):
    (gpt2 / "adapter_config.json").write_text("{}")
    assert "adapter" in fails(gpt2)


def test_code_of_a_checkpoint_is_not_run(gpt2, tmp_path):
    proof = tmp_path / "was-run"
    for name in ("configuration_own.py", "modeling_own.py"):
        (gpt2 / name).write_text(f"open({str(proof)!r}, 'w')\n")
    auto_map = {
        "AutoConfig": "configuration_own.OwnConfig",
        "AutoModelForCausalLM": "modeling_own.OwnModel",
    }
    change_config(gpt2, auto_map=auto_map)
    replica = load_replica(WorkerConfig(model=str(gpt2), max_model_len=32, cpu_threads=1))
    assert replica.info.embedding_size == 64
    assert not proof.exists()


def test_a_context_longer_than_the_models(gpt2):
    assert "--max-model-len" in fails(gpt2, max_model_len=MAX_POSITIONS + 1)


@pytest.mark.parametrize(("max_model_len", "is_served"), [(32, True), (33, False)])
def test_longrope_is_served_within_its_first_context(max_model_len, is_served, tmp_path):
    fields = {
        **SMALL,
        "num_key_value_heads": 2,
        "original_max_position_embeddings": 32,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "short_factor": [1.0] * 4,
            "long_factor": [2.0] * 4,
            "original_max_position_embeddings": 32,
        },
    }
    folder = make_fallback_checkpoint(tmp_path, "phi3", fields)
    settings = {"max_model_len": max_model_len, "model_impl": "transformers"}
    if is_served:
        load_replica(WorkerConfig(model=str(folder), cpu_threads=1, **settings))
    else:
        assert "at most 32" in fails(folder, **settings)
