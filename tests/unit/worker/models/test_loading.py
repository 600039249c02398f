"""Checkpoints and settings that do not do: one StartupError each, naming what is wrong."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from pagewire_shared.errors import StartupError
from pagewire_worker.config import WorkerConfig
from pagewire_worker.families.fields import UnsupportedModelError
from pagewire_worker.loading.loader import load_replica
from pagewire_worker.models.registry import read_plan


@pytest.fixture
def copy(checkpoint, tmp_path):
    """Return a function that copies a variant to where it may be damaged."""

    def make(name):
        return shutil.copytree(checkpoint(name), tmp_path / "copy")

    return make


def change_config(folder, **fields):
    path = folder / "config.json"
    data = json.loads(path.read_text())
    data.update(fields)
    path.write_text(json.dumps({k: v for k, v in data.items() if v is not ...}))


def change_tensors(folder, change):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def fails(folder, **settings):
    settings = {"max_model_len": 128, "cpu_threads": 1, **settings}
    with pytest.raises(StartupError) as caught:
        load_replica(WorkerConfig(model=str(folder), **settings))
    assert "\n" not in caught.value.message
    return caught.value.message


def test_missing_folder(tmp_path):
    assert "no folder" in fails(tmp_path / "nothing")


def test_missing_config(copy):
    folder = copy("llama")
    (folder / "config.json").unlink()
    assert "config.json" in fails(folder)


def test_broken_config(copy):
    folder = copy("llama")
    (folder / "config.json").write_text("{not json")
    assert "not valid JSON" in fails(folder)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "MambaForCausalLM"),
        ({"architectures": None}, "architecture"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor"),
        ({"use_sliding_window": True}, "sliding"),
        ({"layer_types": ["sliding_attention"]}, "sliding"),
        ({"quantization_config": {"quant_method": "aqlm"}}, "quantization_config"),
        ({"hidden_size": ...}, "hidden_size"),
        ({"hidden_size": "64"}, "hidden_size"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"vocab_size": 500}, "embed_tokens"),
        ({"intermediate_size": 190}, "gate_proj"),
        ({"num_hidden_layers": 3}, "layers.2"),
        ({"num_hidden_layers": 1}, "layers.1"),
        ({"tie_word_embeddings": False}, "lm_head"),
    ],
)
def test_a_config_that_does_not_do(fields, named, copy):
    folder = copy("qwen2-tied")
    change_config(folder, **fields)
    assert named in fails(folder)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel"),
        ({"hidden_act": "relu2"}, "hidden_act"),
        ({"rope_parameters": {"rope_type": "proportional", "factor": 4.0}}, "proportional"),
        ({"rope_parameters": None, "rope_scaling": {"type": "ntk", "factor": 2}}, "ntk"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    ],
)
def test_what_the_native_decoder_does_not_do(fields, named, copy):
    folder = copy("qwen2-tied")
    change_config(folder, **fields)
    with pytest.raises(UnsupportedModelError):
        read_plan(folder)
    assert named in fails(folder, model_impl="native")


def test_a_missing_tensor(copy):
    folder = copy("llama")
    change_tensors(folder, lambda t: t.pop("model.layers.1.mlp.up_proj.weight"))
    assert "model.layers.1.mlp.up_proj.weight" in fails(folder)


def test_an_unexpected_tensor(copy):
    folder = copy("llama")
    change_tensors(
        folder, lambda t: t.update({"model.layers.0.self_attn.q_proj.bias": torch.zeros(64)})
    )
    assert "q_proj.bias" in fails(folder)


def test_old_rotary_buffers_are_ignored(copy):
    folder = copy("llama")
    change_tensors(
        folder, lambda t: t.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)})
    )
    load_replica(WorkerConfig(model=str(folder), max_model_len=64, cpu_threads=1))


def test_a_wrong_shape(copy):
    folder = copy("llama")
    change_tensors(folder, lambda t: t.update({"model.norm.weight": torch.ones(65)}))
    message = fails(folder)
    assert "model.norm.weight" in message
    assert "[65]" in message


def test_an_integer_tensor(copy):
    folder = copy("llama")
    change_tensors(
        folder, lambda t: t.update({"model.norm.weight": torch.ones(64, dtype=torch.int8)})
    )
    assert "model.norm.weight" in fails(folder)


@pytest.mark.parametrize("num_bytes", [4, 100, 100_000])
def test_truncated_weights(num_bytes, copy):
    folder = copy("llama")
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:num_bytes])
    assert "truncated" in fails(folder)


def test_no_weights(copy):
    folder = copy("llama")
    (folder / "model.safetensors").unlink()
    assert "model.safetensors" in fails(folder)


def test_a_missing_shard(copy):
    folder = copy("llama3-rope-sharded")
    shard = sorted(folder.glob("model-0000*.safetensors"))[1]
    shard.unlink()
    assert shard.name in fails(folder)


def test_a_truncated_shard(copy):
    folder = copy("llama3-rope-sharded")
    shard = sorted(folder.glob("model-0000*.safetensors"))[1]
    shard.write_bytes(shard.read_bytes()[:-10])
    assert shard.name in fails(folder)


def test_a_broken_index(copy):
    folder = copy("llama3-rope-sharded")
    (folder / "model.safetensors.index.json").write_text('{"weight_map": 3}')
    assert "index" in fails(folder)


def test_an_index_that_names_a_tensor_its_shard_lacks(copy):
    folder = copy("llama3-rope-sharded")
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    files = sorted(set(index["weight_map"].values()))
    index["weight_map"]["model.embed_tokens.weight"] = files[-1]
    path.write_text(json.dumps(index))
    assert "lacks the tensor model.embed_tokens.weight" in fails(folder)


def test_too_little_kv_memory(checkpoint):
    message = fails(checkpoint("llama"), kv_cache_memory=16 * 1024)
    assert "--kv-cache-memory" in message
    assert "--max-model-len" in message


def test_more_kv_memory_than_there_is(checkpoint):
    assert "--kv-cache-memory" in fails(checkpoint("llama"), kv_cache_memory=10**15)


def test_a_context_longer_than_the_models(checkpoint):
    assert "--max-model-len" in fails(checkpoint("llama"), max_model_len=10**6)


@pytest.mark.parametrize("name", ["block_size", "max_num_seqs", "steps_in_flight", "cpu_threads"])
def test_a_setting_below_its_minimum(name):
    with pytest.raises(StartupError, match="--" + name.replace("_", "-")):
        WorkerConfig(model="x", **{name: 0})


def test_kv_cache_fills_its_budget(replica):
    info = replica("llama", kv_cache_memory=1024 * 1024, block_size=16).info
    (group,) = info.cache_groups
    assert group.bytes_per_block == 2 * 2 * 16 * 2 * 16 * 4
    assert info.num_blocks == 1024 * 1024 // group.bytes_per_block


def test_fingerprints_tell_numerics_apart(replica):
    prints = {
        replica("llama", **settings).info.numerics_fingerprint
        for settings in ({}, {"dtype": "bfloat16"}, {"attention_backend": "reference"})
    }
    assert len(prints) == 3


def test_loading_shows_progress(checkpoint):
    seen = []
    config = WorkerConfig(model=str(checkpoint("llama")), max_model_len=64, cpu_threads=1)
    load_replica(config, on_progress=lambda fraction, detail: seen.append(fraction))
    assert seen == sorted(seen)
    assert seen[0] == 0.0
    assert seen[-1] == 1.0
    assert len(seen) > 10


@pytest.mark.parametrize(
    "fields",
    [
        {"rope_parameters": ..., "rope_theta": 5000.0},
        {"rope_parameters": ..., "rope_theta": 5000.0, "rope_scaling": None},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}},
    ],
)
def test_both_spellings_of_rope(fields, copy):
    folder = copy("llama")
    change_config(folder, **fields)
    assert read_plan(folder).attention.rope.theta == 5000.0


def test_legacy_rope_scaling(copy):
    folder = copy("llama")
    change_config(
        folder, rope_parameters=..., rope_theta=1e6, rope_scaling={"type": "linear", "factor": 4.0}
    )
    rope = read_plan(folder).attention.rope
    assert (rope.theta, rope.rope_type, dict(rope.settings)) == (1e6, "linear", {"factor": 4.0})
