"""Block names: known answers (the encoding is a contract between versions) and what they depend
on."""

import hashlib
import struct

import pytest

from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.block_hash import block_name, layout_fingerprint, root_name

ROOT = {
    "model_fingerprint": bytes(range(32)),
    "layout_fingerprint": bytes(16),
    "dtype": "float32",
}


def test_root_is_sha256_of_the_documented_encoding() -> None:
    parts = [b"root", bytes(range(32)), bytes(16), b"float32", b"", b""]
    encoded = b"\x01" + b"".join(struct.pack("<I", len(p)) + p for p in parts)
    assert root_name(**ROOT) == hashlib.sha256(encoded).digest()[:16]


def test_block_known_answer() -> None:
    parent = BlockName(b"p" * 16)
    encoded = (
        b"\x01\x05\x00\x00\x00block\x10\x00\x00\x00" + b"p" * 16 + b"\x08\x00\x00\x00"
        b"\x07\x00\x00\x00\x2c\x01\x00\x00"
    )
    assert block_name(parent, [7, 300]) == hashlib.sha256(encoded).digest()[:16]


def test_known_answers_never_change() -> None:
    root = root_name(**ROOT)
    assert root.hex() == "316728eaac47be7ea0d69049871cf5b6"
    assert block_name(root, [1, 2, 3]).hex() == "1c33548c254ae16a9907259538297f13"
    assert (
        layout_fingerprint([(1, 4, 16, 65536, 0, 1, "float32")]).hex()
        == "12e3abe4e58f859cd25d9b5cb5b1694a"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"model_fingerprint": bytes(32)},
        {"layout_fingerprint": b"x" * 16},
        {"dtype": "bfloat16"},
        {"salt": b"tenant"},
        {"adapter": b"lora"},
    ],
)
def test_every_part_of_the_root_matters(change: dict[str, bytes | str]) -> None:
    assert root_name(**{**ROOT, **change}) != root_name(**ROOT)  # type: ignore[arg-type]


def test_salt_and_adapter_do_not_run_into_each_other() -> None:
    assert root_name(**ROOT, salt=b"ab", adapter=b"") != root_name(**ROOT, salt=b"a", adapter=b"b")


def test_name_depends_on_everything_before() -> None:
    root = root_name(**ROOT)
    first = block_name(root, [1, 2])
    assert block_name(first, [3, 4]) != block_name(root, [3, 4])
    assert block_name(root, [1, 2, 3]) != block_name(root, [1, 2])
