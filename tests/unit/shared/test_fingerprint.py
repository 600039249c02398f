"""Fingerprints follow content, not names; truncated files are refused."""

import json
import struct
from pathlib import Path

import pytest

from pagewire_shared.errors import StartupError
from pagewire_shared.fingerprint import model_fingerprint, tokenizer_fingerprint


def write_model(folder: Path, payload: bytes = b"\x01\x02\x03\x04", cut: int = 0) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}")
    header = json.dumps(
        {"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "__metadata__": {"a": "b"}}
    ).encode()
    data = struct.pack("<Q", len(header)) + header + payload
    (folder / "model.safetensors").write_bytes(data[: len(data) - cut])
    return folder


def test_same_content_same_fingerprint(tmp_path: Path) -> None:
    first = model_fingerprint(write_model(tmp_path / "a"))
    assert first == model_fingerprint(write_model(tmp_path / "b"))
    assert first != model_fingerprint(write_model(tmp_path / "c", b"\x01\x02\x03\x05"))
    (tmp_path / "b" / "config.json").write_text('{"x": 1}')
    assert first != model_fingerprint(tmp_path / "b")


@pytest.mark.parametrize("cut", [1, 60, 10_000])
def test_truncated_file(tmp_path: Path, cut: int) -> None:
    write_model(tmp_path / "a", cut=cut)
    with pytest.raises(StartupError, match=r"model\.safetensors"):
        model_fingerprint(tmp_path / "a")


def test_tokenizer(tmp_path: Path) -> None:
    assert tokenizer_fingerprint(tmp_path) == bytes(32)
    (tmp_path / "tokenizer.json").write_text("{}")
    assert len(tokenizer_fingerprint(tmp_path)) == 32
    assert tokenizer_fingerprint(tmp_path) != bytes(32)
