"""The step that shows what memory steps take: it runs on a CPU here, with the figures of a device
that a test makes up."""

import numpy as np
import pytest
import torch

from pagewire_shared.errors import StartupError
from pagewire_shared.sampling.params import MAX_LOGPROBS
from pagewire_worker.backend.source import LoadSettings
from pagewire_worker.kv.layer_watch import LayerCalls
from pagewire_worker.loading import loader
from pagewire_worker.loading.cache_sizing import CacheSettings, make_cache
from pagewire_worker.loading.memory_probe import MemoryInUse
from pagewire_worker.loading.profile_run import LargestStep, MostSampling
from pagewire_worker.loading.source_selection import choose_source
from pagewire_worker.sampling.sampler import sample
from support.cells.worker_driver import load

MIB = 1024**2
CPU = torch.device("cpu")


class Probe:
    """A device of 64 MiB, of which 20 are used, 12 of them by the model."""

    def __init__(self, peak=10 * MIB):
        self.calls = []
        self._peak = peak

    def begin(self):
        self.calls.append("begin")

    def peak(self):
        self.calls.append("peak")
        return self._peak

    def in_use(self):
        self.calls.append("in_use")
        return MemoryInUse(64 * MIB, 20 * MIB, 12 * MIB)


class Watched:
    """A loaded model whose steps and logits are seen."""

    def __init__(self, model, probe):
        self.model, self.probe = model, probe
        self.batches, self.logits = [], []

    @property
    def cache_shape(self):
        return self.model.cache_shape

    def backend(self, cache, on_layer):
        made = self.model.backend(cache, on_layer)
        forward, logits = made.forward, made.logits

        def seen_forward(batch):
            self.probe.calls.append("forward")
            self.batches.append((batch, cache.num_blocks))
            return forward(batch)

        def seen_logits(hidden):
            self.logits.append(logits(hidden))
            return self.logits[-1]

        made.forward, made.logits = seen_forward, seen_logits
        return made


@pytest.fixture(params=["sdpa", "triton"])
def loaded(request, checkpoint):
    source = choose_source(checkpoint("llama"), "auto")
    return source.load(
        LoadSettings(
            device=CPU,
            dtype=torch.float32,
            max_model_len=64,
            block_size=16,
            attention_backend=request.param,
            linear_backend="torch",
            cpu_backend="torch",
            on_progress=lambda fraction: None,
        )
    )


def settings(step, **fields):
    defaults = {"asked_bytes": None, "utilization": 0.9}
    return CacheSettings(
        device=CPU, dtype=torch.float32, block_size=16, step=step, **{**defaults, **fields}
    )


def make(loaded, probe, step, **fields):
    layers = []
    model = Watched(loaded, probe)
    cache = make_cache(model, settings(step, **fields), LayerCalls(lambda: layers.append(1)), probe)
    return cache, model, len(layers)


def test_the_largest_step_runs_once_before_the_cache_is_made(loaded):
    probe = Probe()
    cache, model, num_layers = make(loaded, probe, LargestStep(24, 4, 64), graph_bytes=MIB)
    assert probe.calls == ["begin", "forward", "peak", "in_use"]
    assert num_layers == loaded.cache_shape.num_layers
    ((batch, num_blocks),) = model.batches
    assert len(batch.token_ids) == 24
    assert num_blocks == 2
    (logits,) = model.logits
    assert len(logits) == 4
    assert torch.isfinite(logits).all()
    # No more than sequences can fill, of what 0.9 of 64 MiB leave: 57.6 - 20 - 10 - 1.
    assert cache.num_blocks == min(int(64 * MIB * 0.9 - 31 * MIB) // cache.bytes_per_block, 4 * 4)


def test_the_largest_batch_is_sampled_with_all_that_takes_memory(loaded):
    """By the sampler that requests get: penalties, filters and the most alternatives, each row."""
    probe, seen = Probe(), []
    tokens = torch.zeros((4, 65), dtype=torch.int32)

    def sampler(logits, rows, masks=None):
        probe.calls.append("sample")
        seen.append((logits.shape, rows))
        return sample(logits, rows, masks)

    make(loaded, probe, LargestStep(24, 4, 64), sampling=MostSampling(sampler, tokens))
    assert probe.calls == ["begin", "forward", "sample", "peak", "in_use"]
    ((shape, rows),) = seen
    assert shape == (4, 512)
    assert rows.penalties.affected().tolist() == [0, 1, 2, 3]
    assert (rows.temperature > 0).all()
    assert ((rows.top_p < 1) & (rows.top_k > 0) & (rows.min_p > 0)).all()
    assert (rows.num_logprobs == MAX_LOGPROBS).all()
    assert rows.history.tokens is tokens
    assert rows.history.num_tokens.tolist() == [64] * 4


def test_tables_are_made_before_the_cache_takes_the_rest(checkpoint, monkeypatch):
    order = []

    class Watched(loader.SlotTable):
        def __init__(self, *arguments, **settings):
            order.append("tables")
            super().__init__(*arguments, **settings)

    def watched(*arguments):
        order.append("cache")
        return make_cache(*arguments)

    monkeypatch.setattr(loader, "SlotTable", Watched)
    monkeypatch.setattr("pagewire_worker.runner.model_runner.SlotTable", Watched)
    monkeypatch.setattr(loader, "make_cache", watched)
    replica = load(checkpoint("llama"), max_model_len=64)
    assert order == ["tables", "cache"]
    assert replica.model_runner._slots.limits.num_blocks == replica.info.num_blocks


def test_what_the_share_leaves_is_the_cache(loaded):
    step = LargestStep(8, 10**6, 64)
    cache, _, _ = make(loaded, Probe(), step)
    budget = int(64 * MIB * 0.9) - 30 * MIB
    assert cache.num_blocks == budget // cache.bytes_per_block
    less, _, _ = make(loaded, Probe(peak=12 * MIB), step)
    assert cache.num_blocks - less.num_blocks == 2 * MIB // cache.bytes_per_block


@pytest.mark.parametrize(
    ("step", "query_lens", "seq_lens"),
    [
        (LargestStep(24, 4, 64), [24], [64]),
        (LargestStep(64, 4, 64), [64], [64]),
        (LargestStep(70, 4, 32), [32, 32, 6], [32, 32, 6]),
        (LargestStep(70, 2, 32), [32, 32], [32, 32]),
    ],
)
def test_the_chunk_lies_at_the_end_of_a_sequence_of_full_length(loaded, step, query_lens, seq_lens):
    _, model, _ = make(loaded, Probe(), step)
    ((batch, num_blocks),) = model.batches
    assert batch.attention.query_lens.tolist() == query_lens
    assert batch.attention.seq_lens.tolist() == seq_lens
    ends = np.cumsum(query_lens)
    positions = batch.positions.tolist()
    for new, end, seq_len in zip(query_lens, ends, seq_lens, strict=True):
        assert positions[end - new : end] == list(range(seq_len - new, seq_len))
    # Each token has a place of its own, and no block is beyond the cache of this run.
    assert len(set(batch.slot_mapping.tolist())) == sum(query_lens)
    assert max(batch.slot_mapping.tolist()) < num_blocks * 16
    assert batch.attention.block_tables.max() < num_blocks
    assert batch.attention.block_tables.shape[1] == -(-step.seq_len // 16)


def test_what_is_asked_for_needs_no_step(loaded):
    probe = Probe()
    cache, model, _ = make(loaded, probe, LargestStep(8, 4, 64), asked_bytes=MIB)
    assert cache.num_blocks == MIB // cache.bytes_per_block
    assert (model.batches, probe.calls) == ([], ["in_use"])
    with pytest.raises(StartupError, match=r"--kv-cache-memory: 45\.0 MiB .* 44\.0 MiB are free"):
        make(loaded, Probe(), LargestStep(8, 4, 64), asked_bytes=45 * MIB)


def test_a_step_that_takes_all_is_an_error(loaded):
    with pytest.raises(StartupError, match=r"38\.0 MiB for a step of 8 tokens") as caught:
        make(loaded, Probe(peak=38 * MIB), LargestStep(8, 4, 64))
    assert caught.value.field == "gpu_memory_utilization"


def test_a_step_that_does_not_fit_is_an_error_that_says_what_to_lower(loaded):
    class Full(Probe):
        def peak(self):
            raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate")

    with pytest.raises(StartupError, match=r"--max-num-batched-tokens: .* 8 tokens") as caught:
        make(loaded, Full(), LargestStep(8, 4, 64))
    assert caught.value.field == "max_num_batched_tokens"
    assert "\n" not in caught.value.message
