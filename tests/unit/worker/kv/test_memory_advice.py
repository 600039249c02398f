"""Weights that were read from a mapped file give their memory back; caches ask for large pages."""

import mmap
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from pagewire_worker.checkpoint.weights import SafetensorsReader
from pagewire_worker.host.memory_advice import release_pages, use_large_pages
from pagewire_worker.kv.kv_cache import CacheShape, KvCache

SHAPE = (2048, 1024)
NUM_BYTES = 2048 * 1024 * 4
PER_PAGE = mmap.PAGESIZE // 4
"""Float32 numbers of a page."""

LARGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux is advised")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint of two tensors of 8 MiB."""
    save_file(
        {"first": torch.full(SHAPE, 1.0), "second": torch.full(SHAPE, 2.0)},
        tmp_path / "model.safetensors",
    )
    return tmp_path


@pytest.fixture
def reader(folder: Path) -> SafetensorsReader:
    return SafetensorsReader(folder, torch.device("cpu"), torch.float32)


def resident_bytes(path: Path) -> int:
    """Return how much of a file this process has in its own tables."""
    total, is_within = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split(maxsplit=1)[0]
        if not first.endswith(":"):
            is_within = line.endswith(str(path))
        elif is_within and first == "Rss:":
            total += int(line.split()[1]) * 1024
    return total


def test_a_borrowed_tensor_gives_its_memory_back(reader: SafetensorsReader, folder: Path) -> None:
    file = folder / "model.safetensors"
    with reader.borrow("second", SHAPE) as second:
        assert second.sum() == 2.0 * second.numel()
        assert resident_bytes(file) >= NUM_BYTES
    assert resident_bytes(file) < NUM_BYTES // 8


def test_a_tensor_beside_it_keeps_its_own(reader: SafetensorsReader, folder: Path) -> None:
    with reader.borrow("first", SHAPE) as first:
        assert first.sum() == first.numel()
        with reader.borrow("second", SHAPE) as second:
            assert second.sum() == 2.0 * second.numel()
        assert (
            NUM_BYTES - 2 * mmap.PAGESIZE
            <= resident_bytes(folder / "model.safetensors")
            < 1.5 * NUM_BYTES
        )
        assert first.sum() == first.numel()


def test_what_is_read_again_comes_from_the_file(reader: SafetensorsReader) -> None:
    with reader.borrow("second", SHAPE) as second:
        release_pages(second)
        assert second.sum() == 2.0 * second.numel()


@pytest.mark.parametrize(
    ("num_elements", "num_pages"),
    [
        (0, 0),
        (1, 0),
        (PER_PAGE, 0),
        (2 * PER_PAGE - 2, 0),
        (2 * PER_PAGE - 1, 1),
        (5 * PER_PAGE, 4),
    ],
)
def test_pages_that_others_share_are_kept(num_elements: int, num_pages: int) -> None:
    """Only whole pages within a tensor are dropped. These are no file's: what is dropped is 0."""
    whole = torch.ones(64 * PER_PAGE)
    first_page = -(whole.data_ptr() // whole.element_size()) % PER_PAGE
    release_pages(whole[first_page + 1 :][:num_elements])
    assert (whole == 0).sum() == num_pages * PER_PAGE


def flags_at(tensor: Tensor) -> set[str]:
    """Return what is set for the memory that holds the middle of `tensor`, as smaps has it."""
    middle, is_within = tensor.data_ptr() + tensor.numel() * tensor.element_size() // 2, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            begin, end = (int(word, 16) for word in words[0].split("-"))
            is_within = begin <= middle < end
        elif is_within and words[0] == "VmFlags:":
            return set(words[1:])
    return set()


@pytest.mark.skipif(not LARGE_PAGES.exists(), reason="this kernel has no large pages")
def test_a_cache_asks_for_large_pages() -> None:
    shape = CacheShape(1, 8, 128, None)
    (layer,) = KvCache(
        shape=shape, num_blocks=512, block_size=16, device=torch.device("cpu"), dtype=torch.float32
    ).layers
    assert "hg" in flags_at(layer.key)
    assert "hg" in flags_at(layer.value)
    assert not layer.key.any()


def test_what_is_too_small_for_advice_stays_as_it_is() -> None:
    small = torch.ones(3)
    use_large_pages(small)
    release_pages(small)
    assert small.tolist() == [1.0, 1.0, 1.0]
