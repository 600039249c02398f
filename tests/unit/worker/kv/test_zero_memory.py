"""Zeroed memory whose pages a thread makes."""

import resource
import sys
import threading

import pytest
import torch

from pagewire_worker.host import zero_memory
from pagewire_worker.host.zero_memory import TouchThread, zeros

_NUM_BYTES = 64 << 20


def _wait_for_thread() -> None:
    for thread in threading.enumerate():
        if thread.name == "touch-memory":
            thread.join(60)
            assert not thread.is_alive()


def test_arrays_are_zero_and_apart() -> None:
    sizes = [(4, 3, 64, 1024), (2, 5), (4, 3, 64, 1024)]
    first, small, second = zeros(sizes, torch.bfloat16)
    assert [first.shape, small.shape, second.shape] == [torch.Size(size) for size in sizes]
    first.fill_(1)
    assert not small.any()
    assert not second.any()


def test_numbers_written_meanwhile_stay() -> None:
    [array] = zeros([(_NUM_BYTES,)], torch.uint8)
    TouchThread([array])
    places = torch.arange(0, _NUM_BYTES, 4099)
    array[places] = 7
    _wait_for_thread()
    assert int(array.sum()) == 7 * len(places)


@pytest.mark.skipif(sys.platform != "linux", reason="pages are made at once elsewhere")
def test_pages_are_there_before_they_are_used() -> None:
    [array] = zeros([(_NUM_BYTES,)], torch.uint8)
    TouchThread([array])
    _wait_for_thread()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    array.fill_(1)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert faults < _NUM_BYTES // 4096 // 10


def test_pages_are_made_at_once_where_the_system_makes_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zero_memory, "_populate", lambda address, num_bytes: 22)
    [array] = zeros([(_NUM_BYTES,)], torch.uint8)
    TouchThread([array])
    assert not [one for one in threading.enumerate() if one.name == "touch-memory"]
    assert not array.any()


def test_a_refusal_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers = iter([0, 0, 12])
    monkeypatch.setattr(zero_memory, "_populate", lambda address, num_bytes: next(answers))
    [array] = zeros([(_NUM_BYTES,)], torch.uint8)
    TouchThread([array])
    _wait_for_thread()
    assert not array.any()
    assert "Cannot allocate memory" in caplog.text
