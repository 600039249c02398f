"""Staging memory is pinned for as long as it is there; where that fails a warning says why."""

import logging

import pytest
import torch

from pagewire_shared.kv.extents import GRANULE_BYTES
from pagewire_worker.kv.cuda_copies import make_copies, pin_memory
from pagewire_worker.kv.device_copies import ImmediateCopies
from pagewire_worker.transfer.staging import Staging


class Runtime:
    """CUDA's, as far as it is used."""

    def __init__(self, code=0):
        self.code = code
        self.pinned = {}

    def cudaHostRegister(self, address, num_bytes, flags):
        assert flags == 1
        if not self.code:
            self.pinned[address] = num_bytes
        return self.code

    def cudaHostUnregister(self, address):
        return 0 if self.pinned.pop(address, None) else 1


@pytest.mark.parametrize("num_bytes", [1, GRANULE_BYTES, 5 * GRANULE_BYTES - 7])
def test_staging_memory_is_pinned_until_it_is_closed(num_bytes):
    runtime = Runtime()
    staging = Staging(num_bytes, is_shared=False, pin=lambda memory: pin_memory(memory, runtime))
    assert runtime.pinned == {}
    staging.make()
    staging.make()
    region = staging.region(0, 1)
    assert runtime.pinned == {region.data_ptr(): staging.num_bytes}
    staging.close()
    assert runtime.pinned == {}
    staging.close()


def test_memory_that_cannot_be_pinned_is_a_warning_and_nothing_to_undo(caplog):
    runtime = Runtime(code=2)
    memory = torch.zeros(4096, dtype=torch.uint8)
    with caplog.at_level(logging.WARNING):
        unpin = pin_memory(memory, runtime)
        (record,) = caplog.records
        for word in ("4096 bytes", "CUDA error 2", "ulimit -l", "--kv-staging-memory"):
            assert word in record.getMessage()
        unpin()
    assert len(caplog.records) == 1


def test_memory_that_stays_pinned_is_a_warning(caplog):
    runtime = Runtime()
    unpin = pin_memory(torch.zeros(8, dtype=torch.uint8), runtime)
    runtime.pinned.clear()
    with caplog.at_level(logging.WARNING):
        unpin()
    assert "stays pinned" in caplog.text


def test_copies_on_a_cpu_are_immediate_and_pin_nothing():
    copies = make_copies(torch.device("cpu"))
    assert isinstance(copies, ImmediateCopies)
    done = []
    copies.call_after(copies.copy_out([1], lambda: done.append(1)), lambda: done.append(2))
    copies.load(lambda: done.append(3))
    assert done == [1, 2, 3]
    staging = Staging(1, is_shared=False, pin=copies.pin)
    staging.make()
    staging.close()
    copies.close()
