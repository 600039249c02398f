"""What a captured graph reads lives as long as the graph: a graph knows addresses, not tensors."""

import gc
import weakref

import pytest
import torch

from pagewire_worker.attention.triton import TritonAttention
from pagewire_worker.backend.sampled_tokens import SampledTokens
from pagewire_worker.runner.readback import CudaReadback
from support.cells.worker_driver import PROMPT, Driver, load
from support.kernels.captured_decodes import NoCapture, capture_decodes


def test_a_stand_in_for_graphs_keeps_nothing_alive():
    """As a graph of CUDA: it is the captured work that must be kept by whoever replays it."""
    read = torch.ones(3)
    seen = weakref.ref(read)

    def work(read=read):
        read.add_(1)

    captured = NoCapture()(work)
    replay = captured.replay
    del read, work
    replay()
    assert seen().tolist() == [3.0] * 3
    del captured
    gc.collect()
    assert seen() is None
    with pytest.raises(ReferenceError):
        replay()


def test_what_captured_decodes_read_is_theirs(checkpoint, monkeypatch):
    prepare, read = TritonAttention.prepare_decodes, []

    def watched(self, *arguments):
        attend = prepare(self, *arguments)
        read.append(weakref.ref(attend.decodes.which))
        return attend

    monkeypatch.setattr(TritonAttention, "prepare_decodes", watched)
    settings = {"max_num_seqs": 4, "max_model_len": 64, "kv_cache_memory": 2**20}
    replica = load(checkpoint("llama"), attention_backend="triton", **settings)
    graphs = capture_decodes(replica.model_runner)
    gc.collect()
    assert len(read) == 3
    assert all(which() is not None for which in read)
    Driver.of(replica).generate([PROMPT[:9]], max_tokens=3)
    assert graphs.num_steps == 2


def test_waiting_for_a_step_takes_no_core(monkeypatch):
    """An event of CUDA spins unless it is told otherwise."""
    told = []

    class Event:
        def __init__(self, **settings):
            told.append(settings)

        def record(self):
            pass

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr("pagewire_worker.runner.readback._to_pinned", lambda tensor: tensor)
    CudaReadback().start(SampledTokens(torch.zeros(1, dtype=torch.int64)))
    assert told == [{"blocking": True}]
