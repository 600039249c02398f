"""Which checkpoints run natively, which through transformers, and which are refused in one line."""

import json
import logging
import os
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from pagewire_shared.errors import StartupError
from pagewire_worker.config import WorkerConfig
from pagewire_worker.fallback.check import check_against_plain
from pagewire_worker.fallback.refusal import Refusal
from pagewire_worker.fallback.source import TransformersSource
from pagewire_worker.loader import load_replica
from support.checkpoints import make_checkpoint
from support.fallback_checkpoints import (
    MAX_POSITIONS,
    VOCAB,
    make_fallback_checkpoint,
    make_served_checkpoint,
)

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
        "recurrent state",
    ),
    "gpt-j": (
        "gptj",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 8},
        "GPTJForCausalLM",
        "attention interface",
    ),
    "sinks": (
        "gpt_oss",
        {**SMALL, **EXPERTS, "num_key_value_heads": 2, "head_dim": 8},
        "GptOssForCausalLM",
        "s_aux",
    ),
    "latent": (
        "deepseek_v2",
        {
            **SMALL,
            "first_k_dense_replace": 2,
            "kv_lora_rank": 8,
            "q_lora_rank": 8,
            "qk_nope_head_dim": 8,
            "qk_rope_head_dim": 8,
            "v_head_dim": 8,
        },
        "DeepseekV2ForCausalLM",
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


@pytest.fixture
def gpt2(tmp_path):
    """A checkpoint that may be damaged."""
    return make_served_checkpoint(tmp_path, "gpt2")


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_architectures_that_are_refused(name, tmp_path):
    model_type, fields, architecture, reason = REFUSED[name]
    folder = make_fallback_checkpoint(tmp_path, model_type, {"vocab_size": 300, **fields})
    message = fails(folder)
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
    assert "GPT2LMHeadModel" in fails(gpt2)


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
    if is_served:
        load_replica(WorkerConfig(model=str(folder), max_model_len=max_model_len, cpu_threads=1))
    else:
        assert "at most 32" in fails(folder, max_model_len=max_model_len)


def path_taken(folder, caplog, **settings):
    with caplog.at_level(logging.INFO, logger="pagewire_worker"):
        settings = {"max_model_len": 32, "cpu_threads": 1, **settings}
        replica = load_replica(WorkerConfig(model=str(folder), **settings))
    (line,) = [r.getMessage() for r in caplog.records if r.name.endswith("models.choice")]
    is_fallback = replica.executor._backend.kernel_set.startswith("transformers=")
    assert is_fallback == ("through transformers" in line)
    return line


def test_the_log_says_which_way_and_why(checkpoint, caplog):
    assert path_taken(checkpoint("llama"), caplog) == "LlamaForCausalLM runs natively"


def test_a_native_architecture_may_be_run_by_transformers(checkpoint, caplog):
    line = path_taken(checkpoint("qwen3"), caplog, model_impl="transformers")
    assert "--model-impl" in line


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}}, "yarn"),
        (
            {
                "use_sliding_window": True,
                "sliding_window": 5,
                "max_window_layers": 1,
                "layer_types": ["full_attention", "sliding_attention"],
            },
            "sliding-window",
        ),
    ],
)
def test_what_the_native_decoder_does_not_do_transformers_does(
    fields, named, checkpoint, tmp_path, caplog
):
    folder = shutil.copytree(checkpoint("qwen2-tied"), tmp_path / "copy")
    change_config(folder, **fields)
    assert named in path_taken(folder, caplog)


def test_the_two_ways_are_told_apart_by_their_numerics(checkpoint):
    prints = {
        load_replica(
            WorkerConfig(
                model=str(checkpoint("llama")), max_model_len=32, cpu_threads=1, model_impl=impl
            )
        ).info.numerics_fingerprint
        for impl in ("native", "transformers")
    }
    assert len(prints) == 2


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_passes_the_check(dtype, tmp_path):
    for name in ("gpt-neox", "gemma2", "mixtral"):
        folder = make_served_checkpoint(tmp_path, name)
        replica = load_replica(
            WorkerConfig(model=str(folder), max_model_len=32, cpu_threads=1, dtype=dtype)
        )
        assert replica.info.cache_groups[0].dtype == dtype


def test_a_native_model_does_not_import_transformers(checkpoint):
    code = (
        "import sys; from pagewire_worker.config import WorkerConfig; "
        "from pagewire_worker.loader import load_replica; "
        f"load_replica(WorkerConfig(model={str(checkpoint('llama'))!r}, max_model_len=32)); "
        "sys.exit('transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], env=os.environ, check=False).returncode == 0


class Shifted:
    """A backend that gets something wrong on the way to the right one."""

    def __init__(self, right, change):
        self._right, self._change = right, change

    def forward(self, batch):
        return self._right.forward(self._change(batch))

    def logits(self, hidden):
        return self._right.logits(hidden)


class Doubled(Shifted):
    """Logits that miss a factor."""

    def logits(self, hidden):
        return 2 * self._right.logits(hidden)


def late(batch):
    """Return the batch with all positions one too late."""
    object.__setattr__(batch, "positions", batch.positions + 1)
    return batch


def foreign(batch):
    """Return the batch with the block tables of its sequences exchanged."""
    tables = batch.attention.block_tables
    tables[:] = tables[::-1].copy()
    return batch


@pytest.mark.parametrize(
    ("kind", "change", "named"),
    [
        (Shifted, late, "hidden states"),
        (Shifted, foreign, "hidden states"),
        (Doubled, lambda batch: batch, "logits"),
    ],
)
def test_the_check_at_the_start_finds(kind, change, named, gpt2, settings_of):
    source = TransformersSource.read(gpt2, json.loads((gpt2 / "config.json").read_text()))
    loaded = source.load(settings_of(block_size=4))
    arguments = (MAX_POSITIONS, VOCAB, torch.device("cpu"), torch.float32)

    def right(cache):
        return loaded.backend(cache, lambda: None)

    check_against_plain(loaded.model, right, *arguments)
    with pytest.raises(Refusal, match=named):
        check_against_plain(loaded.model, lambda cache: kind(right(cache), change), *arguments)


@pytest.fixture
def settings_of():
    """Return a function from fields to LoadSettings on the CPU."""
    from pagewire_worker.models.source import LoadSettings

    defaults = {
        "device": torch.device("cpu"),
        "dtype": torch.float32,
        "max_model_len": 64,
        "block_size": 16,
        "attention_backend": "auto",
        "linear_backend": "auto",
        "on_progress": lambda fraction: None,
    }
    return lambda **fields: LoadSettings(**{**defaults, **fields})


def test_a_checkpoint_that_shows_progress(gpt2):
    seen = []
    config = WorkerConfig(model=str(gpt2), max_model_len=32, cpu_threads=1)
    load_replica(config, on_progress=lambda fraction, detail: seen.append(fraction))
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0.0, 1.0)


def test_layers_are_counted(gpt2):
    steps = []
    config = WorkerConfig(model=str(gpt2), max_model_len=32, cpu_threads=1)
    load_replica(config, on_layer=lambda: steps.append(1))
    assert len(steps) == 2 * 3  # two steps of warm-up, three layers


def test_embedding_sizes(checkpoint, tmp_path):
    opt = make_served_checkpoint(tmp_path, "opt")
    sizes = [
        load_replica(
            WorkerConfig(model=str(folder), max_model_len=32, cpu_threads=1)
        ).info.embedding_size
        for folder in (checkpoint("llama"), opt)
    ]
    assert sizes == [64, 32]


def test_a_tied_checkpoint(tmp_path):
    folder = make_checkpoint(tmp_path, tied=True, with_tokenizer=False)
    load_replica(
        WorkerConfig(model=str(folder), max_model_len=32, cpu_threads=1, model_impl="transformers")
    )
