"""What `pagewire size`, `models`, `pull` and `doctor` say."""

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
import torch

from pagewire.cli import main
from pagewire.cli.doctor import describe
from pagewire.inspect.machine import Finding, examine
from pagewire.inspect.model_size import model_size
from pagewire.models import BUILTIN_FOLDER
from pagewire_shared.errors import StartupError
from pagewire_shared.model_files.config import read_config
from pagewire_worker.checkpoint.dtypes import CACHE_DTYPES
from pagewire_worker.kv.kv_cache import bytes_per_block
from pagewire_worker.models.registry import read_plan
from support.checkpoints.checkpoints import make_checkpoint
from support.oracles.nested_checkpoints import make_nested_checkpoint

LLAMA_7B = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}


@pytest.mark.parametrize("window", [None, 32])
def test_the_sum_is_that_of_the_worker(tmp_path: Path, window: int | None) -> None:
    folder = make_checkpoint(tmp_path / "m", architecture="Qwen3ForCausalLM")
    data = read_config(folder)
    size = model_size(folder, data, dtype="bfloat16", quantization="none", max_len=256)
    shape = read_plan(folder).cache_shape
    assert size.kv_token_bytes * 16 == bytes_per_block(shape, 16, torch.bfloat16)
    assert size.sequence_bytes == size.kv_token_bytes * 256
    stored = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    whole = model_size(folder, data, dtype="float32", quantization="none", max_len=256)
    assert whole.weight_bytes == whole.num_parameters * 4
    assert stored * 0.95 < whole.num_parameters * 4 < stored * 2.1
    for name, kind in CACHE_DTYPES.items():
        narrow = model_size(
            folder, data, dtype="bfloat16", quantization="none", max_len=256, kv_dtype=name
        )
        assert narrow.kv_token_bytes * 16 == bytes_per_block(shape, 16, kind)
    if window:
        data |= {"sliding_window": window, "use_sliding_window": True, "layer_types": None}
        small = model_size(folder, data, dtype="bfloat16", quantization="none", max_len=256)
        assert small.sequence_bytes == small.kv_token_bytes * window


def test_experts_and_windows_of_some_layers_count(tmp_path: Path) -> None:
    """gpt-oss-20b: 21 billion weights, and every second layer keeps 128 positions."""
    config = {
        **{"hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 24, "head_dim": 64},
        **{"num_attention_heads": 64, "num_key_value_heads": 8, "num_local_experts": 32},
        **{"vocab_size": 201088, "max_position_embeddings": 131072, "sliding_window": 128},
        "layer_types": ["sliding_attention", "full_attention"] * 12,
    }
    size = model_size(tmp_path, config, dtype="auto", quantization="none", max_len=1024)
    assert size.num_parameters == pytest.approx(20.9e9, rel=0.01)
    assert size.sequence_bytes == size.kv_token_bytes * (1024 + 128) // 2


@pytest.mark.parametrize("name", ["mistral3", "qwen2-vl"])
def test_of_a_checkpoint_for_images_the_text_model_counts(tmp_path: Path, name: str) -> None:
    folder = make_nested_checkpoint(tmp_path, name)
    data = read_config(folder)
    size = model_size(folder, data, dtype="float32", quantization="none", max_len=None)
    shape = read_plan(folder).cache_shape
    assert size.kv_token_bytes * 16 == bytes_per_block(shape, 16, torch.float32)
    assert size.context == 512
    (folder / "model.safetensors").unlink()
    alone = model_size(folder, data, dtype="float32", quantization="none", max_len=None)
    # The estimate knows no norms of heads and no biases.
    assert 0 <= size.num_parameters - alone.num_parameters < 1000


def test_a_known_model_without_its_weights(tmp_path: Path) -> None:
    size = model_size(tmp_path, LLAMA_7B, dtype="auto", quantization="none", max_len=None)
    assert size.num_parameters == 6_738_415_616
    assert size.kv_token_bytes == 2 * 32 * 32 * 128 * 2
    assert size.num_sequences(24 * 2**30) == 5
    assert size.num_sequences(8 * 2**30) == 0
    small = model_size(tmp_path, LLAMA_7B, dtype="auto", quantization="int4", max_len=1024)
    assert small.weight_bytes < 4 * 2**30
    with pytest.raises(StartupError, match="num_hidden_layers"):
        model_size(tmp_path, {"hidden_size": 4}, dtype="auto", quantization="none", max_len=9)


def test_a_quantized_checkpoint_has_the_weights_of_a_plain_one_in_fewer_bytes() -> None:
    folder = Path(__file__).parents[3] / "support" / "quantized" / "w4a16"
    size = model_size(
        folder, read_config(folder), dtype="bfloat16", quantization="none", max_len=None
    )
    # Two layers of four attention and three other matrices, the embedding and the head.
    attention = 64 * (4 + 2 + 2) * 32 + 4 * 32 * 64
    matrices = 2 * (attention + 3 * 64 * 64) + 2 * 128 * 64
    assert size.num_parameters - matrices == 5 * 64
    assert size.weight_bytes == (folder / "model.safetensors").stat().st_size


def test_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    snapshot = tmp_path / "models--org--small" / "snapshots" / "0"
    shutil.copytree(BUILTIN_FOLDER, snapshot)
    (snapshot / "tokenizer.json").unlink()
    assert main(["models", "--json"]) == 0
    listed = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert listed["pagewire-builtin"]["problem"] == ""
    assert "has no tokenizer" in listed["org/small"]["problem"]
    assert main(["size", "pagewire-builtin", "--memory", "4GiB", "--json"]) == 0
    shown: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (shown["context"], shown["num_sequences"]) == (2048, 892)
    assert main(["pull", "org/none"]) == 1
    assert "HF_HUB_OFFLINE is set" in capsys.readouterr().err
    assert main(["pull", "./x/y/z"]) == 1
    assert "is not an id such as org/name" in capsys.readouterr().err
    assert main(["size", "org/none"]) == 1
    assert "neither a folder nor in the cache" in capsys.readouterr().err


def test_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = examine({}, (port,))
    by_subject = {one.subject: one for one in found}
    assert by_subject["Python"].state == "ok"
    assert by_subject["packages"].state == "ok"
    assert by_subject["port"].state == "warn"
    assert "--port" in by_subject["port"].cure
    assert all(one.cure for one in found if one.state != "ok")
    assert main(["doctor"]) == 0
    assert "ok    Python" in capsys.readouterr().out
    assert describe(Finding("x", "fail", "y", "z"), has_colour=False) == "fail  x              y; z"


def test_a_missing_package_is_a_failure_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagewire.inspect.machine._PACKAGES", ("no-such-package",))
    (one,) = [one for one in examine({}, ()) if one.subject == "packages"]
    assert (one.state, one.cure) == ("fail", "pip install 'pagewire[all]'")
