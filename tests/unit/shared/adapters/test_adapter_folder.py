"""Folders with adapters: identity, tensors, and hostile files."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pagewire_shared.adapters.adapter_error import AdapterError
from pagewire_shared.adapters.adapter_folder import (
    AdapterContent,
    check_adapter,
    check_content,
    read_adapter_files,
)
from pagewire_shared.adapters.content_id import adapter_id_of
from pagewire_shared.adapters.tensor_header import AdapterBounds
from support.adapters.adapter_files import (
    CONFIG,
    ENTRIES,
    Entry,
    Q,
    framed,
    weights_of,
    write_adapter,
)

WEIGHTS = "adapter_model.safetensors"
BOUNDS = AdapterBounds()
DOWN, UP = ENTRIES


def test_a_whole_adapter(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "a")
    summary = check_adapter(folder, BOUNDS)
    content = read_adapter_files(folder, BOUNDS)
    assert summary.adapter_id == adapter_id_of(content.config, content.weights)
    assert len(summary.adapter_id) == 32
    assert (summary.rank, summary.targets) == (4, ("q_proj",))
    assert summary.num_bytes == content.num_bytes
    (module,) = summary.modules
    assert (module.name, module.num_inputs, module.num_outputs, module.scaling) == (
        "model.layers.0.self_attn.q_proj",
        6,
        10,
        2.0,
    )
    assert check_content(content, BOUNDS) == summary


def test_the_identity_is_that_of_the_content(tmp_path: Path) -> None:
    config, weights = b"ab", b"cd"
    whole = adapter_id_of(config, weights)
    assert whole == adapter_id_of(config, [b"c", b"", b"d"])
    assert whole != adapter_id_of(b"a", b"bcd")
    assert whole != adapter_id_of(config, b"ce")
    one = check_adapter(write_adapter(tmp_path / "a"), BOUNDS)
    assert one == check_adapter(write_adapter(tmp_path / "b"), BOUNDS)
    other = check_adapter(write_adapter(tmp_path / "a", CONFIG | {"lora_alpha": 9}), BOUNDS)
    assert other.adapter_id != one.adapter_id


def test_the_published_adapter() -> None:
    import pagewire

    folder = Path(pagewire.__file__).parent / "builtin_adapter"
    summary = check_adapter(folder, BOUNDS)
    assert summary.rank == 8
    assert len(summary.targets) == 7


def entries(*changed: Entry) -> bytes:
    return weights_of(changed)


def changed(**fields: Any) -> bytes:
    described: dict[str, Any] = {"dtype": "F32", "shape": [4, 6], "data_offsets": [0, 96]}
    return weights_of(ENTRIES, {DOWN[0]: described | fields})


HOSTILE: dict[str, tuple[str, bytes]] = {
    "empty": (WEIGHTS, b""),
    "short": (WEIGHTS, b"\x01\x00"),
    "a pickle": (WEIGHTS, b"\x80\x02}q\x00."),
    "header beyond the end": (WEIGHTS, struct.pack("<Q", 1000) + b"{}"),
    "header of 2**64 bytes": (WEIGHTS, struct.pack("<Q", 2**64 - 1) + b"{}"),
    "no JSON": (WEIGHTS, framed(b"{", 0)),
    "a list": (WEIGHTS, framed(b"[]", 0)),
    "deep JSON": (WEIGHTS, framed(b"[" * 100_000, 0)),
    "a name twice": (WEIGHTS, framed(b'{"a": {}, "a": {}}', 0)),
    "no tensors": (WEIGHTS, framed(b"{}", 0)),
    "truncated": ("lora_B", weights_of(ENTRIES)[:-1]),
    "bytes behind": (WEIGHTS, weights_of(ENTRIES) + b"x"),
    "overlap": (
        "lora_B",
        weights_of(ENTRIES, {UP[0]: {"dtype": "F32", "shape": [10, 4], "data_offsets": [92, 252]}}),
    ),
    "gap": ("lora_A", changed(data_offsets=[4, 100])),
    "backwards": ("lora_A", changed(data_offsets=[96, 0])),
    "negative offsets": ("lora_A", changed(data_offsets=[-96, 0])),
    "three offsets": ("lora_A", changed(data_offsets=[0, 1, 96])),
    "float offsets": ("lora_A", changed(data_offsets=[0.0, 96.0])),
    "huge shape": ("lora_A", changed(shape=[2**47, 2**47])),
    "negative shape": ("lora_A", changed(shape=[-4, -6])),
    "boolean shape": ("lora_A", changed(shape=[True, 24])),
    "many dimensions": ("lora_A", changed(shape=[1] * 1000 + [24])),
    "type of integers": ("lora_A", changed(dtype="I64")),
    "type of 8 bits": ("lora_A", changed(dtype="F8_E4M3")),
    "no type": ("lora_A", changed(dtype=None)),
    "unhashable type": ("lora_A", changed(dtype=["F32"])),
    "a vector": ("lora_A", changed(shape=[24])),
    "no description": ("lora_A", weights_of(ENTRIES, {DOWN[0]: 1})),
    "B alone": ("lora_A", entries(UP)),
    "A alone": ("lora_B", entries(DOWN)),
    "ranks that differ": ("lora_B", entries(DOWN, (UP[0], "F32", (10, 5)))),
    "another rank": ("lora_A", entries((DOWN[0], "F32", (2, 6)), (UP[0], "F32", (10, 2)))),
    "rank 0": ("lora_A", entries((DOWN[0], "F32", (0, 6)), (UP[0], "F32", (10, 0)))),
    "DoRA": ("magnitude", entries(DOWN, UP, (f"{Q}.lora_magnitude_vector", "F32", (10,)))),
    "bias": ("lora_B.bias", entries(DOWN, UP, (f"{Q}.lora_B.bias", "F32", (10,)))),
    "another matrix": (
        "embed_tokens",
        entries(DOWN, UP, ("base_model.model.model.embed_tokens.weight", "F32", (9, 6))),
    ),
    "a copy of a matrix without its adapter": (
        "lm_head.base_layer",
        entries(DOWN, UP, ("base_model.model.lm_head.base_layer.weight", "F32", (9, 6))),
    ),
    "two adapters of a module": (
        "lora_embedding_A",
        entries(DOWN, UP, (f"{Q}.lora_embedding_A", "F32", (4, 6))),
    ),
    "no prefix": ("lora_A", entries(("q_proj.lora_A.weight", "F32", (4, 6)))),
    "no target": (
        "k_proj",
        entries(
            (DOWN[0].replace("q_proj", "k_proj"), "F32", (4, 6)),
            (UP[0].replace("q_proj", "k_proj"), "F32", (10, 4)),
        ),
    ),
    "half of a pair": ("ud800", entries((f"{Q}\ud800", "F32", (4, 6)))),
    "many objects": (WEIGHTS, framed(b'{"a": [' + b"{}," * 200_000 + b"{}]}", 0)),
    "many lists": (WEIGHTS, framed(b'{"a": [' + b"[]," * 300_000 + b"[]]}", 0)),
    "many numbers": (WEIGHTS, framed(b'{"a": [' + b"0," * 1_100_000 + b"0]}", 0)),
    "a long name": ("xxxx", entries(("x" * 100_000, "F32", (4, 6)))),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_tensors(case: str, tmp_path: Path) -> None:
    field, weights = HOSTILE[case]
    folder = write_adapter(tmp_path / "a", weights=weights)
    with pytest.raises(AdapterError) as caught:
        check_adapter(folder, BOUNDS)
    assert field in str(caught.value.field)
    assert len(caught.value.message) < 600
    with pytest.raises(AdapterError, match="adapter_model"):
        check_content(AdapterContent(json.dumps(CONFIG).encode(), weights), BOUNDS)


def test_sizes_are_checked_before_anything_is_read(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "a")
    # A hole of a terabyte, which no disk has to hold.
    os.truncate(folder / WEIGHTS, 1 << 40)
    for call in (check_adapter, read_adapter_files):
        with pytest.raises(AdapterError, match="bytes are more than"):
            call(folder, BOUNDS)
    for bounds, text in (
        (AdapterBounds(max_header_bytes=10), "header of"),
        (AdapterBounds(max_tensors=1), "2 tensors"),
        (AdapterBounds(max_rank=3), "rank 4"),
    ):
        with pytest.raises(AdapterError, match=text):
            check_adapter(write_adapter(folder), bounds)


def missing(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def as_pickle(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "adapter_model.bin")


def as_folder(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).mkdir()


def as_pipe(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    os.mkfifo(folder / WEIGHTS)


def as_link(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder.parent / "elsewhere")
    (folder / WEIGHTS).symlink_to(folder.parent / "elsewhere")


def as_circle(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).symlink_to(WEIGHTS)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (missing("adapter_config.json"), "adapter_config.json cannot be read"),
        (missing(WEIGHTS), "adapter_model.safetensors cannot be read"),
        (as_pickle, "is a pickle"),
        (as_folder, "regular file"),
        (as_pipe, "regular file"),
        (as_link, "leaves the folder"),
        (as_circle, "cannot be read"),
    ],
)
def test_hostile_folders(change: Callable[[Path], object], text: str, tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "a")
    change(folder)
    with pytest.raises(AdapterError, match=text):
        check_adapter(folder, BOUNDS)


def test_links_within_the_root(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "a")
    as_link(folder)
    assert check_adapter(folder, BOUNDS, root=tmp_path).rank == 4
    (folder / "inner").write_bytes((tmp_path / "elsewhere").read_bytes())
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).symlink_to("inner")
    assert check_adapter(folder, BOUNDS).rank == 4
