"""The fingerprint of a checkpoint is that of every byte of it; truncated files are refused."""

import json
import os
import random
import struct
from pathlib import Path

import pytest
import torch

from pagewire_shared.errors import StartupError
from pagewire_shared.identity.model_files import override_bytes
from pagewire_worker.checkpoint import fingerprint as module
from pagewire_worker.checkpoint.digest_cache import FILE_NAME, DigestCache
from pagewire_worker.checkpoint.fingerprint import model_fingerprint
from pagewire_worker.checkpoint.load_format import weights_fingerprint
from support.checkpoints.checkpoints import make_checkpoint


@pytest.fixture
def cache(tmp_path: Path) -> DigestCache:
    return DigestCache(tmp_path / "cache")


def write_model(folder: Path, payload: bytes = b"\x01\x02\x03\x04", cut: int = 0) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}")
    shape = {"dtype": "U8", "shape": [len(payload)], "data_offsets": [0, len(payload)]}
    header = json.dumps({"w": shape, "__metadata__": {"a": "b"}}).encode()
    data = struct.pack("<Q", len(header)) + header + payload
    (folder / "model.safetensors").write_bytes(data[: len(data) - cut])
    return folder


def test_same_content_same_fingerprint(tmp_path: Path, cache: DigestCache) -> None:
    first = model_fingerprint(write_model(tmp_path / "a"), cache)
    assert first == model_fingerprint(write_model(tmp_path / "b"), cache)
    assert first != model_fingerprint(write_model(tmp_path / "c", b"\x01\x02\x03\x05"), cache)
    (tmp_path / "b" / "config.json").write_text('{"x": 1}')
    assert first != model_fingerprint(tmp_path / "b", cache)


def test_known_answers(tmp_path: Path, cache: DigestCache) -> None:
    """KV blocks in stores are named by these: another encoding needs another version in its tag."""
    known = {
        1: "84d4b09b37de6c37b19d128aeceb981dd9c32cfb15bff231421d35a670c35168",
        20_000: "2ac2223fd8e876c9a61e1c30a0ff5efcd779fb587841431f65ae55407bf1399f",
    }
    found = {
        size: model_fingerprint(write_model(tmp_path / "m", bytes(range(256)) * size), cache).hex()
        for size in known
    }
    assert found == known


def test_any_byte_counts(tmp_path: Path, cache: DigestCache) -> None:
    """Of config and weights, also behind the first 4 KiB of a tensor."""
    folder = make_checkpoint(tmp_path / "model", vocab=259, layers=1)
    files = [folder / "config.json", *sorted(folder.glob("*.safetensors"))]
    dice = random.Random(4)
    starts = {path: 8 + struct.unpack("<Q", path.read_bytes()[:8])[0] for path in files[1:]}
    seen = {model_fingerprint(folder, cache)}
    for _ in range(1000):
        path = dice.choice([files[0], *files[1:] * 9])
        at, bit = dice.randrange(starts.get(path, 0), path.stat().st_size), 1 << dice.randrange(8)
        _flip(path, at, bit)
        seen.add(model_fingerprint(folder, cache))
        _flip(path, at, bit)
    assert model_fingerprint(folder, cache) in seen
    flips = len(seen) - 1
    assert flips >= 990, "but for flips that were drawn twice, all differ"


def _flip(path: Path, at: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (value,) = file.read(1)
        file.seek(at)
        file.write(bytes([value ^ bit]))


def test_windows_are_read_to_the_end(
    tmp_path: Path, cache: DigestCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload = random.Random(1).randbytes(3 * 65536 + 17)
    whole = model_fingerprint(write_model(tmp_path / "a", payload), cache)
    monkeypatch.setattr(module, "WINDOW_BYTES", 65536)
    assert model_fingerprint(write_model(tmp_path / "b", payload), cache) == whole
    last = payload[:-1] + bytes([payload[-1] ^ 1])
    assert model_fingerprint(write_model(tmp_path / "c", last), cache) != whole


@pytest.mark.parametrize("cut", [1, 60, 10_000])
def test_truncated_file(tmp_path: Path, cache: DigestCache, cut: int) -> None:
    write_model(tmp_path / "a", cut=cut)
    with pytest.raises(StartupError, match=r"model\.safetensors"):
        model_fingerprint(tmp_path / "a", cache)


def test_files_that_nobody_loads_do_not_count(tmp_path: Path, cache: DigestCache) -> None:
    folder = write_model(tmp_path / "a")
    first = model_fingerprint(folder, cache)
    (folder / "consolidated.safetensors").write_bytes(b"no safetensors file")
    assert model_fingerprint(folder, cache) == first


class Counted:
    """Counts the files that are hashed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[Path] = []
        hash_file = module._hash

        def count(path: Path) -> bytes:
            self.paths.append(path)
            return hash_file(path)

        monkeypatch.setattr(module, "_hash", count)


def test_a_file_that_is_as_it_was_is_hashed_once(
    tmp_path: Path, cache: DigestCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    monkeypatch.setattr("pagewire_worker.checkpoint.digest_cache.SETTLED_SECONDS", -1.0)
    folder = write_model(tmp_path / "a")
    weights = folder / "model.safetensors"
    first = model_fingerprint(folder, cache)
    assert model_fingerprint(folder, cache) == first
    assert len(counted.paths) == 1
    # In place, of one size, and with the old time set again.
    before = weights.stat()
    _flip(weights, before.st_size - 1, 1)
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert model_fingerprint(folder, cache) != first
    assert len(counted.paths) == 2
    # Another file in its place.
    _flip(weights, before.st_size - 1, 1)
    copy = folder / "copy"
    copy.write_bytes(weights.read_bytes())
    copy.replace(weights)
    assert model_fingerprint(folder, cache) == first
    assert len(counted.paths) == 3


def test_a_file_that_may_still_change_is_not_remembered(
    tmp_path: Path, cache: DigestCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    folder = write_model(tmp_path / "a")
    model_fingerprint(folder, cache)
    model_fingerprint(folder, cache)
    assert len(counted.paths) == 2


@pytest.mark.parametrize("mode", [0o600, 0o620, 0o602])
def test_a_cache_that_others_may_write_is_not_believed(
    tmp_path: Path, cache: DigestCache, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    counted = Counted(monkeypatch)
    monkeypatch.setattr("pagewire_worker.checkpoint.digest_cache.SETTLED_SECONDS", -1.0)
    umask = os.umask(0)
    try:
        folder = write_model(tmp_path / "a")
        model_fingerprint(folder, cache)
    finally:
        os.umask(umask)
    path = tmp_path / "cache" / FILE_NAME
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.chmod(mode)
    model_fingerprint(folder, cache)
    assert len(counted.paths) == (1 if mode == 0o600 else 2)


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1}', '{"version": 1, "digests": []}', "{"])
def test_a_damaged_cache_is_an_empty_one(tmp_path: Path, cache: DigestCache, text: str) -> None:
    folder = write_model(tmp_path / "a")
    first = model_fingerprint(folder, cache)
    (tmp_path / "cache").mkdir(exist_ok=True)
    (tmp_path / "cache" / FILE_NAME).write_text(text)
    assert model_fingerprint(folder, cache) == first


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "a")
    (tmp_path / "file").write_text("")
    assert len(model_fingerprint(folder, DigestCache(tmp_path / "file" / "cache"))) == 32


def test_the_name_of_a_blob_is_not_believed(tmp_path: Path, cache: DigestCache) -> None:
    """In the cache of a hub a file is a link to blobs/<its SHA-256>, which nobody has checked."""
    folder = write_model(tmp_path / "a")
    blob = tmp_path / "blobs" / ("ab" * 32)
    blob.parent.mkdir()
    (folder / "model.safetensors").rename(blob)
    (folder / "model.safetensors").symlink_to(blob)
    first = model_fingerprint(folder, cache)
    _flip(blob, blob.stat().st_size - 1, 1)
    assert model_fingerprint(folder, cache) != first


def test_overrides_of_the_configuration_count(tmp_path: Path, cache: DigestCache) -> None:
    folder = write_model(tmp_path / "a")
    names = [
        module.ModelFingerprint(folder, cache, override_bytes(overrides)).result()
        for overrides in ({}, {"rope_theta": 1.0}, {"rope_theta": 2.0})
    ]
    names.append(model_fingerprint(folder, cache))
    assert names[0] == names[3]
    assert len(set(names)) == 3
    dummy = [
        weights_fingerprint(
            *(folder, "dummy", 0, torch.device("cpu"), torch.float32),
            override_bytes(overrides),
        )()
        for overrides in ({}, {"rope_theta": 1.0})
    ]
    assert dummy[0] != dummy[1]
