"""GGUF files become checkpoints with the values that llama.cpp's own package dequantizes."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

from pagewire.cli import main
from pagewire_shared.errors import StartupError
from pagewire_worker.convert import gguf_file
from pagewire_worker.convert.gguf_config import config_of, eos_of, tensor_name
from pagewire_worker.convert.gguf_file import convert_gguf, find_gguf
from pagewire_worker.convert.gguf_folder import describe_gguf
from support.checkpoints.checkpoints import LLAMA3_ROPE
from support.checkpoints.gguf_files import MIXTURES, make_source, rounded, write_gguf

EXPERT_FIELDS = (
    "model_type",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "norm_topk_prob",
)


def expert_fields(config: dict[str, Any]) -> list[Any]:
    """Return the fields of experts; transformers writes their number under one of two names."""
    count = config.get("num_experts", config.get("num_local_experts"))
    return [count, *(config.get(name) for name in EXPERT_FIELDS)]


SOURCES = ["LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", *MIXTURES]


@pytest.fixture(scope="module", params=SOURCES)
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
            "'qwen3' with experts are not converted; llama, qwen2moe, qwen3moe, gpt-oss are",
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
