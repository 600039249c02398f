"""What a replica says it is, where two checkpoints differ behind the first bytes of a tensor."""

import struct
from pathlib import Path

from support.cells.worker_driver import load
from support.checkpoints.checkpoints import make_checkpoint


def test_replicas_of_different_weights_have_different_fingerprints(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "model", layers=1)
    (path,) = folder.glob("*.safetensors")
    before = load(folder).info.model_fingerprint
    assert load(folder).info.model_fingerprint == before
    data = bytearray(path.read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    data[8 + length + 5000] ^= 1  # a bit of the largest tensor, behind its first 4 KiB
    path.write_bytes(data)
    assert load(folder).info.model_fingerprint != before
