"""GGUF files become checkpoints with the values that llama.cpp's own package dequantizes."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer

from pagewire.cli import main
from pagewire_shared.errors import StartupError
from pagewire_worker.convert import gguf_file
from pagewire_worker.convert.gguf_config import config_of, eos_of, tensor_name
from pagewire_worker.convert.gguf_file import convert_gguf, find_gguf
from pagewire_worker.convert.gguf_folder import describe_gguf
from pagewire_worker.convert.gguf_tokenizer import cut_text_of
from pagewire_worker.models.registry import native_plan
from support.checkpoints.checkpoints import LLAMA3_ROPE
from support.checkpoints.gguf_files import MIXTURES, make_source, rounded, write_gguf
from support.products import cases_of

EXPERT_FIELDS = (
    "model_type",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "n_group",
    "topk_group",
    "n_shared_experts",
    "first_k_dense_replace",
    "routed_scaling_factor",
    "use_qk_norm",
    "attention_bias",
    "norm_topk_prob",
)


def expert_fields(config: dict[str, Any]) -> list[Any]:
    """Return the fields of experts; transformers writes their number under one of two names."""
    count = config.get("num_experts", config.get("num_local_experts"))
    return [count, *(config.get(name) or None for name in EXPERT_FIELDS)]


SOURCES = ["LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", *MIXTURES]


IN_SHORT_RUN = ("LlamaForCausalLM", "glm4_moe")


@pytest.fixture(scope="module", params=cases_of(SOURCES, IN_SHORT_RUN))
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_source(tmp_path_factory.mktemp("checkpoint"), request.param)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q5_1", "F16"])
def test_weights_are_those_of_the_file(checkpoint: Path, kind: str, tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", checkpoint, kind)
    (tmp_path / "out").mkdir()
    convert_gguf(tmp_path / "m.gguf", tmp_path / "out")
    found = load_file(tmp_path / "out" / "model.safetensors")
    wanted = rounded(checkpoint, kind)
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        expected = torch.from_numpy(values).to(torch.bfloat16)
        assert torch.equal(found[name], expected), name
    own, made = (
        json.loads((f / "config.json").read_text()) for f in (checkpoint, tmp_path / "out")
    )
    assert expert_fields(own) == expert_fields(made)


def test_a_file_is_converted_and_can_be_served(
    checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_gguf(tmp_path / "m.gguf", checkpoint, "Q8_0")
    out = tmp_path / "out"
    assert main(["convert", str(tmp_path / "m.gguf"), str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: pagewire serve {out}\n"
    own, made = (json.loads((f / "config.json").read_text()) for f in (checkpoint, out))
    for name in ("architectures", "vocab_size", "num_key_value_heads", "intermediate_size"):
        assert own[name] == made[name]
    text = "one two <|im_end|> grüße"
    ids = [AutoTokenizer.from_pretrained(f).encode(text) for f in (checkpoint, out)]
    assert ids[0] == ids[1]
    assert (out / "chat_template.jinja").read_text().startswith("{% for m in messages %}")
    assert json.loads((out / "generation_config.json").read_text()) == {"eos_token_id": [2]}


def test_files_of_gpt_oss_are_described_and_not_written(tmp_path: Path) -> None:
    checkpoint = make_source(tmp_path / "checkpoint", "gpt_oss")
    write_gguf(tmp_path / "m.gguf", checkpoint, "MXFP4")
    for place in ("out", "made"):
        (tmp_path / place).mkdir()
    with pytest.raises(StartupError, match=r"gpt-oss is not written .* --keep-blocks"):
        convert_gguf(tmp_path / "m.gguf", tmp_path / "out")
    describe_gguf(tmp_path / "m.gguf", tmp_path / "made", is_linked=True)
    made = json.loads((tmp_path / "made" / "config.json").read_text())
    assert made["rope_scaling"] == {
        **{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
        "truncate": False,
    }
    assert (made["sliding_window"], made["num_local_experts"]) == (9, 6)
    text = "one two <|im_end|> grüße"
    ids = [AutoTokenizer.from_pretrained(f).encode(text) for f in (checkpoint, tmp_path / "made")]
    assert ids[0] == ids[1]
    metadata = {
        "general.architecture": "gpt-oss",
        "tokenizer.ggml.tokens": ["a", "<|return|>", "b", "<|call|>"],
        "tokenizer.ggml.eos_token_id": 1,
    }
    assert eos_of(metadata) == [1, 3]


def test_large_models_are_written_in_parts(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf_file, "SHARD_BYTES", 50_000)
    write_gguf(tmp_path / "m.gguf", checkpoint, "Q8_0")
    (tmp_path / "out").mkdir()
    convert_gguf(tmp_path / "m.gguf", tmp_path / "out")
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    files = set(index["weight_map"].values())
    assert len(files) > 2
    stored = {name for file in files for name in load_file(tmp_path / "out" / file)}
    assert stored == rounded(checkpoint, "Q8_0").keys()


METADATA = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 131072,
    "llama.embedding_length": 256,
    "llama.feed_forward_length": 512,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 500000.0,
    "tokenizer.ggml.tokens": ["a", "b"],
    "tokenizer.ggml.eos_token_id": 7,
    "tokenizer.ggml.eot_token_id": 9,
}


DEEPSEEK = {
    **{"block_count": 61, "context_length": 163840, "embedding_length": 7168},
    **{"feed_forward_length": 18432, "attention.head_count": 128, "attention.head_count_kv": 1},
    **{"attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 10000.0},
    **{"attention.q_lora_rank": 1536, "attention.kv_lora_rank": 512, "attention.key_length": 576},
    **{"attention.value_length": 512, "attention.key_length_mla": 192},
    **{"attention.value_length_mla": 128, "rope.dimension_count": 64},
    **{"leading_dense_block_count": 3, "expert_count": 256, "expert_used_count": 8},
    **{"expert_shared_count": 1, "expert_feed_forward_length": 2048, "expert_gating_func": 2},
    **{"expert_group_count": 8, "expert_group_used_count": 4, "expert_weights_scale": 2.5},
    **{"expert_weights_norm": True, "rope.scaling.type": "yarn", "rope.scaling.factor": 40.0},
    **{"rope.scaling.original_context_length": 4096, "rope.scaling.yarn_log_multiplier": 0.1},
}


def test_the_scaling_of_llama_3_is_found_in_its_factors() -> None:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaling = {**LLAMA3_ROPE, "original_max_position_embeddings": 8192}
    made = LlamaConfig(
        hidden_size=256,
        num_attention_heads=4,
        rope_parameters={**scaling, "rope_theta": 500000.0},
    )
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](made, device="cpu")
    plain = 500000.0 ** (-torch.arange(0, 64, 2) / 64)
    factors = (plain / scaled).tolist()
    config = config_of(METADATA, is_tied=True, rope_factors=factors)
    assert config["rope_scaling"] == scaling
    assert (config["head_dim"], config["tie_word_embeddings"]) == (64, True)
    with pytest.raises(StartupError, match="a way of its own"):
        config_of(METADATA, is_tied=True, rope_factors=[1.0, *factors[:-1]])
    assert eos_of(METADATA) == [7, 9]
    assert tensor_name("blk.3.attn_q.bias") == "model.layers.3.self_attn.q_proj.bias"
    assert tensor_name("blk.3.ffn_gate_exps.weight") is None


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"general.architecture": "gemma3"}, "'gemma3' are not converted; llama, qwen2, qwen3 are"),
        (
            {"general.architecture": "qwen3", "qwen3.expert_count": 8},
            "'qwen3' with experts are not converted; llama, qwen2moe, qwen3moe",
        ),
        ({"llama.attention.head_count_kv": [2, 4]}, "head_count_kv per layer"),
        ({"llama.attention.sliding_window": 4096}, "attention windows"),
        ({"llama.rope.dimension_count": 32}, "rotate a part of a head"),
        ({"llama.rope.scaling.type": "longrope"}, "rotary scaling 'longrope'"),
        ({"llama.rope.scaling.type": "yarn"}, "does not say llama.rope.scaling.factor"),
        (
            {
                "llama.rope.scaling.type": "yarn",
                "llama.rope.scaling.factor": 4.0,
                "llama.rope.scaling.original_context_length": 64,
                "llama.rope.scaling.yarn_log_multiplier": 0.1,
            },
            "with llama.rope.scaling.yarn_log_multiplier",
        ),
        ({"llama.block_count": None}, "does not say llama.block_count"),
    ],
)
def test_what_is_not_converted_is_named(changes: dict[str, object], text: str) -> None:
    with pytest.raises(StartupError, match=text):
        config_of({**METADATA, **changes}, is_tied=False, rope_factors=None)


def test_a_folder_with_pickles_beside_is_made_of_those(checkpoint: Path, tmp_path: Path) -> None:
    tensors = load_file(checkpoint / "model.safetensors")
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    (tmp_path / "config.json").write_text((checkpoint / "config.json").read_text())
    write_gguf(tmp_path / "m.gguf", checkpoint, "Q4_0")
    out = tmp_path / "out"
    assert main(["convert", str(tmp_path), str(out)]) == 0
    found = load_file(out / "model.safetensors")
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
    assert (out / "config.json").read_text() == (checkpoint / "config.json").read_text()


def test_files_that_are_no_gguf(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content, line in ((b"PK", "is no GGUF file"), (b"GGUF\x03\x00", "cannot be read")):
        (tmp_path / "m.gguf").write_bytes(content)
        assert main(["convert", str(tmp_path / "m.gguf"), str(tmp_path / "out")]) == 1
        assert line in capsys.readouterr().err
        assert not (tmp_path / "out").exists()
    (tmp_path / "n.gguf").write_bytes(b"")
    with pytest.raises(StartupError, match=r"several GGUF files \(m.gguf, n.gguf\); name one"):
        find_gguf(tmp_path)


def test_the_settings_of_deepseek_are_those_of_its_checkpoints() -> None:
    """V3 as published, but for what files of it do not say: fields are those of its config.json."""
    metadata = {
        "general.architecture": "deepseek2",
        "tokenizer.ggml.tokens": ["a", "b"],
        **{f"deepseek2.{key}": value for key, value in DEEPSEEK.items()},
    }
    names = ("blk.0.attn_k_b.weight", "blk.0.attn_q_a.weight")
    config = config_of(metadata, is_tied=False, rope_factors=None, names=names)
    assert config["architectures"] == ["DeepseekV3ForCausalLM"]
    published = {
        **{"num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536},
        **{"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64},
        **{"v_head_dim": 128, "n_routed_experts": 256, "num_experts_per_tok": 8, "n_group": 8},
        **{"topk_group": 4, "n_shared_experts": 1, "first_k_dense_replace": 3},
        **{"moe_intermediate_size": 2048, "routed_scaling_factor": 2.5, "norm_topk_prob": True},
        **{"topk_method": "noaux_tc", "scoring_func": "sigmoid"},
    }
    assert {name: config[name] for name in published} == published
    scaling = config["rope_scaling"]
    assert (scaling["factor"], scaling["mscale"], scaling["mscale_all_dim"]) == (40, 1.0, 1.0)
    plan = native_plan(config)
    assert plan.attention.latent is not None
    assert plan.attention.latent.absorbed == tuple(
        f"model.layers.0.self_attn.{part}_b_proj" for part in "kv"
    )


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("glm4", ["Hi", ",", " it", "'s", " ", "123", "45", " é"]),
        ("deepseek-v3", ["Hi", ",", " it", "'s", " ", "123", "45", " é"]),
        ("deepseek-llm", ["Hi", ",", " it", "'", "s", " ", "12345", " é"]),
        ("olmo", ["Hi", ",", " it", "'s", " 12345", " é"]),
    ],
)
def test_text_is_cut_as_the_file_says(kind: str, words: list[str]) -> None:
    made = json.loads(Tokenizer(models.BPE()).to_str())
    made["pre_tokenizer"] = cut_text_of({"tokenizer.ggml.pre": kind})
    cut = Tokenizer.from_str(json.dumps(made)).pre_tokenizer
    text = "Hi, it's 12345 é"
    assert cut is not None
    found = [text[begin:end] for _, (begin, end) in cut.pre_tokenize_str(text)]
    assert found == words


def test_a_way_to_cut_text_that_is_not_known_is_named() -> None:
    assert cut_text_of({"tokenizer.ggml.pre": "qwen2"}) is None
    with pytest.raises(StartupError, match="pre 'kimi-k2' are not converted; chat"):
        cut_text_of({"tokenizer.ggml.pre": "kimi-k2"})
