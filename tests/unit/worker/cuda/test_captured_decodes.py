"""Decodes through static inputs and padded batches equal those of torch."""

import numpy as np
import pytest

from pagewire_shared.sampling.params import SamplingParams
from pagewire_worker.attention import triton
from pagewire_worker.backend.attention import AttentionKind
from pagewire_worker.backend.backend import DecodeBounds
from pagewire_worker.triton_kernels.paged_sequences import SplitPlan
from support.adapters.model_adapters import make_adapter
from support.cells.worker_driver import GREEDY, PROMPT, Driver, Running, load, request
from support.checkpoints.fallback_checkpoints import make_fallback_checkpoint
from support.kernels.captured_decodes import capture_decodes
from support.oracles.family_checkpoints import (
    FAMILY_CHECKPOINTS,
    SHAPE,
    WINDOW,
    make_family_checkpoint,
)
from support.poison.launches import reaching

SETTINGS = {"max_num_seqs": 5, "max_model_len": 64, "kv_cache_memory": 2**20}
PROMPTS = [PROMPT[:length] for length in (3, 9, 34, 5, 12)]


@pytest.fixture
def captured(checkpoint):
    """Return a function that loads a variant on Triton's kernels, with captured decodes."""

    def make(name, **settings):
        replica = load(checkpoint(name), attention_backend="triton", **{**SETTINGS, **settings})
        return Driver.of(replica), capture_decodes(replica.model_runner)

    return make


def test_batches_of_every_size_give_the_tokens_of_torch(driver, captured):
    one, graphs = captured("qwen3")
    for count in (1, 4):
        expected = driver("qwen3", **SETTINGS).generate(PROMPTS[:count], max_tokens=3)
        assert one.generate(PROMPTS[:count], max_tokens=3) == expected
    assert graphs.num_steps >= 4


def expert_tensors(table):
    """Return the tensors of adapters that Triton's kernels find in tables."""
    late = getattr(table._store, "_late", None)
    return [] if late is None else [tensor for held in late.held.values() for tensor in held]


@pytest.mark.parametrize("routed", [False, pytest.param(True, marks=pytest.mark.long)])
def test_adapters_of_padded_batches(tmp_path, routed):
    """Graphs with adapters and without them, of one size, take turns."""
    name, shape = FAMILY_CHECKPOINTS["olmoe"] if routed else ("llama", SHAPE)
    folder = make_fallback_checkpoint(tmp_path, name, {**shape, "num_hidden_layers": 1})
    adapter = make_adapter(tmp_path / "adapter", folder, rank=5, routed=routed)
    lora = {"enable_lora": True, "max_loras": 2, "max_lora_rank": 8}

    def answers(one):
        adapter.fill(one.model_runner, 1)
        found = []
        for slots in ((1, None, 1), (None, None, None), (None, 1, None)):
            asked = zip(PROMPTS[:3], slots, strict=True)
            running = [
                Running(number, prompt[:3], GREEDY, 2, adapter_slot=slot)
                for number, (prompt, slot) in enumerate(asked)
            ]
            with reaching(expert_tensors(one.model_runner._adapters)):
                one.finish(running, budget=64)
                one.run_well([])
            found.append([sequence.output for sequence in running])
        return found

    expected = answers(Driver.of(load(folder, **SETTINGS, **lora)))
    assert expected[0] != expected[1]
    replica = load(folder, attention_backend="triton", **SETTINGS, **lora)
    graphs = capture_decodes(replica.model_runner)
    assert answers(Driver.of(replica)) == expected
    assert graphs.num_steps == 3


def test_kinds_of_attention_share_their_scratch_memory(tmp_path):
    """Layers with a window read fewer splits than the others leave room for; sinks are in both."""
    folder = make_family_checkpoint(tmp_path, "gpt-oss")
    expected = Driver.of(load(folder, **SETTINGS)).generate(PROMPTS, max_tokens=2)
    replica = load(folder, attention_backend="triton", **SETTINGS)
    attentions = replica.model_runner.backend._attentions
    assert {kind.window for kind in attentions} == {WINDOW, None}
    for attention in attentions.values():
        attention._split_plan, attention._is_fixed = SplitPlan(16, 16), True
    first, other = attentions.values()
    owner, guest = (first, other) if other._owner is first else (other, first)
    owner.reserve(4, 16, DecodeBounds(5, 64))
    assert guest.scratch is owner.scratch
    graphs = capture_decodes(replica.model_runner)
    assert Driver.of(replica).generate(PROMPTS, max_tokens=2) == expected
    assert graphs.num_steps > 0


def test_latents_of_padded_batches(tmp_path):
    """Without experts, which take most of the time in the interpreter."""
    model_type, fields = FAMILY_CHECKPOINTS["deepseek-v2"]
    fields = {**fields, "first_k_dense_replace": 1, "num_hidden_layers": 1}
    folder = make_fallback_checkpoint(tmp_path, model_type, fields)
    prompts = [PROMPT[:1], PROMPT[4:6], PROMPT[7:8]]
    expected = Driver.of(load(folder, **SETTINGS)).generate(prompts, max_tokens=2)
    replica = load(folder, attention_backend="triton", **SETTINGS)
    graphs = capture_decodes(replica.model_runner)
    assert Driver.of(replica).generate(prompts, max_tokens=2) == expected
    assert graphs.num_steps == 1


def test_random_tokens_are_those_of_torch(driver, captured):
    samplings = [
        SamplingParams(seed=1, max_tokens=None),
        SamplingParams(seed=2, temperature=0.7, top_k=20, max_tokens=None),
        SamplingParams(seed=3, temperature=1.5, top_p=0.8, min_p=0.01, max_tokens=None),
        GREEDY,
        SamplingParams(seed=4, repetition_penalty=1.3, logprobs=2, max_tokens=None),
    ]
    expected = driver("llama", **SETTINGS).generate(PROMPTS, samplings, max_tokens=3)
    one, graphs = captured("llama")
    assert one.generate(PROMPTS, samplings, max_tokens=3) == expected
    assert graphs.num_steps > 0


def test_what_padding_rows_leave_behind_touches_nobody(driver, captured):
    """A batch shrinks and grows again, so that rows hold tables and lengths of others."""
    one, graphs = captured("llama")
    want = driver("llama", **SETTINGS).generate(PROMPTS, max_tokens=4)
    sequences = [
        Running(slot, prompt, GREEDY, max_tokens)
        for slot, (prompt, max_tokens) in enumerate(zip(PROMPTS, (4, 1, 2, 1, 4), strict=True))
    ]
    one.finish(sequences, budget=64)
    for sequence, output in zip(sequences, want, strict=True):
        assert sequence.output == output[: len(sequence.output)]
    assert one.generate(PROMPTS[::-1], max_tokens=4) == want[::-1]
    assert graphs.num_steps > 3


def test_steps_that_are_not_only_decodes_are_not_captured(captured):
    one, graphs = captured("llama")
    (first,) = [Running(0, PROMPT[:5], GREEDY, 6)]
    one.step([first], 64)
    assert graphs.num_steps == 0
    one.step([first], 64)
    assert graphs.num_steps == 1
    one.step([first, Running(1, PROMPT, GREEDY, 2)], 64)
    assert graphs.num_steps == 1


@pytest.mark.long
def test_decodes_beyond_the_scratch_memory_are_not_captured(captured, driver, monkeypatch):
    """They are computed a part at a time; which step runs how changes no token."""
    monkeypatch.setattr(triton, "MAX_PARTIAL_BYTES", 1)
    one, graphs = captured("llama", max_model_len=280)
    assert one.model_runner.backend._eager._attentions[AttentionKind()].scratch.num_splits == 2
    prompts = [[token % 500 for token in range(254)], PROMPT[:5], PROMPT[:7]]
    expected = driver("llama", max_model_len=280).generate(prompts, max_tokens=5)
    assert one.generate(prompts[:1], max_tokens=5) == expected[:1]
    assert graphs.num_steps == 4
    assert one.generate(prompts, max_tokens=5) == expected
    # The last step, of the two short ones, fits again.
    assert graphs.num_steps == 5


def test_layers_that_somebody_awaits_are_computed_one_by_one(captured):
    one, graphs = captured("llama")
    backend = one.model_runner.backend

    class Awaited:
        is_awaited = True
        num_layers = 0

        def __call__(self):
            self.num_layers += 1

    running = Running(0, PROMPT[:5], GREEDY, 6)
    one.step([running], 64)
    watch = backend._on_layer = backend._eager._on_layer = Awaited()
    one.step([running], 64)
    assert (graphs.num_steps, watch.num_layers) == (0, 2)
    watch.is_awaited = False
    one.step([running], 64)
    assert (graphs.num_steps, watch.num_layers) == (1, 4)


def test_resident_tables_are_those_of_the_host(captured, monkeypatch):
    one, _ = captured("llama")
    forward, seen = one.model_runner.backend.forward, []

    def checked(batch):
        metadata = batch.attention
        width = metadata.block_tables.shape[1]
        rows = metadata.resident.select(width).numpy()
        for row, table, length in zip(rows, metadata.block_tables, metadata.seq_lens, strict=True):
            count = -(-int(length) // 16)
            assert row[:count].tolist() == table[:count].tolist()
            seen.append(count)
        return forward(batch)

    monkeypatch.setattr(one.model_runner.backend, "forward", checked)
    one.generate(PROMPTS, max_tokens=4, budget=40)
    # A fork, a copied block, and a slot that is filled anew.
    one.run_well([(0, 0, 20, 1, 0)], new_sequences=[request(0, PROMPT[:20], blocks=[0, 1])])
    one.run_well(
        [(0, 20, 1, 1, 0), (1, 20, 1, 1, 0)],
        fork_slots=[1],
        fork_sources=[0],
        fork_choices=[1],
        copy_slots=[1],
        copy_sources=[1],
        copy_destinations=[5],
    )
    assert np.max(seen) > 2
