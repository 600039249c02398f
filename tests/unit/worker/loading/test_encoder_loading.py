"""Settings and files with which an encoder does not start, and a limit that a file sets."""

import json
from pathlib import Path

import pytest

from pagewire_shared.errors import StartupError
from support.cells.worker_driver import load
from support.checkpoints.encoder_checkpoints import MAX_POSITIONS, make_encoder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder(tmp_path_factory.mktemp("bert"))


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"quantization": "int8"}, "quantization"),
        ({"attention_backend": "triton"}, "attention_backend"),
        ({"linear_backend": "fixed-tile"}, "linear_backend"),
        ({"cpu_backend": "fused"}, "cpu_backend"),
        ({"model_impl": "transformers"}, "model_impl"),
        ({"max_num_batched_tokens": MAX_POSITIONS - 1}, "max_num_batched_tokens"),
        ({"max_model_len": MAX_POSITIONS + 1}, "max_model_len"),
    ],
)
def test_settings_that_do_not_do(encoder: Path, settings: dict[str, object], field: str) -> None:
    with pytest.raises(StartupError) as caught:
        load(encoder, **{"max_model_len": MAX_POSITIONS, **settings})
    assert caught.value.field == field
    assert field.replace("_", "-") in caught.value.message


def test_what_an_encoder_reports(tmp_path: Path) -> None:
    folder = make_encoder(tmp_path, "RobertaForSequenceClassification", num_labels=3)
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 50}))
    info = load(folder, max_model_len=None, kv_offload="writethrough").info
    assert (info.is_encoder, info.num_labels, info.embedding_size) == (True, 3, 32)
    assert info.max_model_len == 50
    assert info.max_num_batched_tokens == info.shared_step_tokens >= 50
    assert (info.loads_blocks, info.kv_transports) == (False, ())
    assert info.num_blocks >= info.max_num_seqs * 4, "no prompt waits for a block"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"position_embedding_type": "relative_key"}, "relative_key"),
        ({"hidden_act": "swish2"}, "swish2"),
        ({"intermediate_size": None}, "intermediate_size"),
    ],
)
def test_configurations_that_are_not_understood(
    tmp_path: Path, encoder: Path, change: dict[str, object], message: str
) -> None:
    for path in encoder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(StartupError, match=message):
        load(tmp_path, max_model_len=MAX_POSITIONS)
