"""Copies beside steps: everybody reads what was written last, and each order that is left out is
found."""

import pytest

from pagewire_worker.kv.stream_copies import Stream, StreamCopies
from pagewire_worker.offload import block_offloader
from support.kernels.copy_histories import BLOCK_BYTES, History, WrongContentError


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch):
    monkeypatch.setattr(block_offloader, "STAGING_BYTES", 2 * BLOCK_BYTES)
    monkeypatch.setattr(block_offloader, "NUM_STAGING", 3)


@pytest.mark.parametrize("seed", range(40))
def test_everybody_reads_what_was_written_last(seed):
    history = History(seed)
    history.run()
    assert history.outlet.names


class NoWaitForSteps(StreamCopies):
    """Copies out without waiting for what was computed."""

    def copy_out(self, blocks, work):
        self._streams.enqueue(Stream.OUT, work)
        return self._streams.record(Stream.OUT)


class NoOverwrite(StreamCopies):
    def overwrite(self, blocks):
        pass


class OverwriteByStepsOnly(StreamCopies):
    def overwrite(self, blocks):
        streams, self._streams = self._streams, OnlyCompute(self._streams)
        super().overwrite(blocks)
        self._streams = streams


class OnlyCompute:
    def __init__(self, streams):
        self.streams = streams

    def wait(self, stream, event):
        if stream is Stream.COMPUTE:
            self.streams.wait(stream, event)


class NoLoadsBeforeSteps(StreamCopies):
    def begin_step(self):
        pass


class NoLoadsBeforeCopies(StreamCopies):
    def _follow_loads(self, stream):
        if stream is Stream.COMPUTE:
            super()._follow_loads(stream)


class LoadsWaitForNoStep(StreamCopies):
    def order_loads(self):
        pass


class NoWaitForStaging(StreamCopies):
    def wait_for_loads(self):
        pass


class CallsAtOnce(StreamCopies):
    def call_after(self, event, then):
        then()


@pytest.mark.parametrize(
    "make_copies",
    [
        NoWaitForSteps,
        NoOverwrite,
        OverwriteByStepsOnly,
        NoLoadsBeforeSteps,
        NoLoadsBeforeCopies,
        LoadsWaitForNoStep,
        NoWaitForStaging,
        CallsAtOnce,
    ],
)
def test_an_order_that_is_left_out_is_found(make_copies):
    def is_found(seed):
        try:
            History(seed, make_copies).run()
        except WrongContentError:
            return True
        return False

    assert any(is_found(seed) for seed in range(40))
