"""Adapters with values that are not finite never get a name."""

import asyncio
import struct
from pathlib import Path

import pytest

from pagewire_frontend.adapters.registry import AdapterRegistry
from pagewire_frontend.adapters.store import ContentFolder
from pagewire_shared.adapters.adapter_error import AdapterError
from support.adapters.adapter_files import ENTRIES, weights_of, write_adapter


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [
        ("F32", struct.pack("<f", float("nan"))),
        ("F32", struct.pack("<f", float("-inf"))),
        ("F16", b"\x00\x7c"),
        ("BF16", b"\x81\x7f"),
    ],
)
def test_values_are_finite(dtype: str, bits: bytes, tmp_path: Path) -> None:
    weights = weights_of([(name, dtype, shape) for name, _, shape in ENTRIES])
    largest = {"F32": b"\xff\xff\x7f\x7f", "F16": b"\xff\x7b", "BF16": b"\x7f\x7f"}[dtype]

    async def load(end: bytes) -> None:
        folder = write_adapter(tmp_path / "a", weights=weights[: -len(end)] + end)
        await adapters.load("a", folder)

    store = ContentFolder(tmp_path / "store", 1 << 20)
    adapters = AdapterRegistry(store, models=["tiny"], taken_names=[])
    with pytest.raises(AdapterError, match=r"lora_B\.weight: not all values are finite"):
        asyncio.run(load(bits))
    assert (len(adapters), store.num_bytes) == (0, 0)
    asyncio.run(load(largest))
    assert len(adapters) == 1
