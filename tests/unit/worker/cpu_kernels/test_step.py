"""Whole steps of the kernels against torch's on the same batches, and against themselves."""

import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pagewire_worker.backend.source import LoadedReplicaModel
from pagewire_worker.checkpoint.weights import SafetensorsReader
from pagewire_worker.cpu_kernels import backend as fused_backend
from pagewire_worker.cpu_kernels.library import KernelPool
from support.checkpoints.checkpoints import make_checkpoint
from support.kernels.fused_kernels import pools
from support.kernels.fused_steps import (
    CPU,
    Calls,
    Chunk,
    Follower,
    Sequences,
    fused_model,
    over_cache,
    run,
    silent,
    torch_model,
)

VOCAB = 500  # no multiple of 16: rows of the last panel are padding
LENGTHS = (1, 17, 40, 90, 33)

CHECKPOINTS: dict[str, dict[str, Any]] = {
    "llama": {"architecture": "LlamaForCausalLM", "rope_scaling": "llama3", "sharded": True},
    "llama-biases": {
        "architecture": "LlamaForCausalLM",
        "head_dim": 32,
        "config": {"attention_bias": True, "mlp_bias": True},
    },
    "qwen2-tied": {"architecture": "Qwen2ForCausalLM", "tied": True},
    "qwen2": {"architecture": "Qwen2ForCausalLM", "heads": 6, "kv_heads": 1, "head_dim": 16},
    "qwen3": {"architecture": "Qwen3ForCausalLM", "heads": 8, "kv_heads": 2, "head_dim": 16},
    "mistral": {
        "architecture": "LlamaForCausalLM",
        "config": {"architectures": ["MistralForCausalLM"], "sliding_window": 20},
    },
}

TOLERANCE = 5e-6
"""Of hidden states in float32, relative to their size."""

Folders = Callable[[str], Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Return a function that makes a checkpoint the first time its name is asked for."""

    @functools.cache
    def make(name: str) -> Path:
        made = tmp_path_factory.mktemp(name)
        shape = {"vocab": VOCAB, "layers": 3, "with_tokenizer": False}
        return make_checkpoint(made, **shape, **CHECKPOINTS[name])

    return make


def steps_of(lengths: Sequence[int], seed: int) -> list[list[Chunk]]:
    """Return steps that compute sequences of `lengths` in chunks and one by one, together."""
    generator = random.Random(seed)
    done = [0] * len(lengths)
    steps = []
    while any(begin < length for begin, length in zip(done, lengths, strict=True)):
        open_ones = [i for i, length in enumerate(lengths) if done[i] < length]
        chosen = generator.sample(open_ones, generator.randrange(1, len(open_ones) + 1))
        step = []
        for index in chosen:
            size = generator.choice([1, 1, 7, 16, 30, 64])
            end = min(done[index] + size, lengths[index])
            step.append(Chunk(index, done[index], end))
            done[index] = end
        steps.append(step)
    return steps


def differences(found: Tensor, exact: Tensor) -> Tensor:
    """Return how far each row is off, relative to its size."""
    distance = (found.double() - exact.double()).norm(dim=1)
    return distance / exact.double().norm(dim=1)


@pytest.mark.parametrize("pool", pools(2))
@pytest.mark.parametrize("block_size", [16, 32])
@pytest.mark.parametrize("name", sorted(CHECKPOINTS))
def test_steps_equal_those_of_torch(
    name: str, block_size: int, pool: KernelPool, folder: Folders
) -> None:
    sequences = Sequences(LENGTHS, block_size, VOCAB)
    batches = [sequences.batch(step) for step in steps_of(LENGTHS, seed=block_size)]
    cache = (sequences.num_blocks, block_size, torch.float32, silent())
    fused = over_cache(fused_model(folder(name), pool, torch.float32), *cache)
    plain = over_cache(torch_model(folder(name), torch.float32, block_size), *cache)
    for found, exact in zip(run(fused, batches), run(plain, batches), strict=True):
        assert differences(found, exact).max() <= TOLERANCE
        logits = fused.logits(exact)
        assert logits.shape == (len(exact), VOCAB)
        assert differences(logits, plain.logits(exact)).max() <= TOLERANCE
        assert torch.equal(fused.greedy(exact).token_ids, logits.argmax(dim=1))


@pytest.mark.parametrize("pool", pools(2))
@pytest.mark.parametrize("block_size", [16, 32])
@pytest.mark.parametrize("name", sorted(CHECKPOINTS))
def test_bfloat16_is_as_close_to_float32_as_that_of_torch(
    name: str, block_size: int, pool: KernelPool, folder: Folders
) -> None:
    sequences = Sequences(LENGTHS, block_size, VOCAB)
    batches = [sequences.batch(step) for step in steps_of(LENGTHS, seed=block_size)]

    def states(model: LoadedReplicaModel, dtype: torch.dtype) -> Tensor:
        backend = over_cache(model, sequences.num_blocks, block_size, dtype, silent())
        found = torch.cat(run(backend, batches))
        assert found.dtype == dtype
        return found

    narrow = torch.bfloat16
    exact = states(torch_model(folder(name), torch.float32, block_size), torch.float32)
    plain = differences(states(torch_model(folder(name), narrow, block_size), narrow), exact)
    fused = differences(states(fused_model(folder(name), pool, narrow), narrow), exact)
    assert fused.mean() <= plain.mean()
    assert fused.max() <= 1.5 * plain.max()


@pytest.mark.parametrize("pool", pools(2))
@pytest.mark.parametrize(
    ("name", "tensor"),
    [("llama", "lm_head.weight"), ("qwen2-tied", "model.embed_tokens.weight")],
)
def test_logits_in_bfloat16(name: str, tensor: str, pool: KernelPool, folder: Folders) -> None:
    torch.manual_seed(0)
    dtype = torch.bfloat16
    states = torch.randn(40, 64).to(dtype)
    fused = over_cache(fused_model(folder(name), pool, dtype), 4, 16, dtype, silent())
    weight = SafetensorsReader(folder(name), CPU, dtype).take(tensor, (VOCAB, 64))
    logits = fused.logits(states)
    assert logits.dtype == torch.float32
    assert differences(logits, states.double() @ weight.double().T).max() <= TOLERANCE
    assert torch.equal(fused.greedy(states).token_ids, logits.argmax(dim=1))


@pytest.mark.parametrize("pool", pools(2))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["llama-biases", "qwen3", "mistral"])
def test_a_token_is_the_same_bits_in_any_step(
    name: str, dtype: torch.dtype, pool: KernelPool, folder: Folders
) -> None:
    model = fused_model(folder(name), pool, dtype)
    results = []
    for seed in range(3):
        sequences = Sequences(LENGTHS, 16, VOCAB)
        whole = [[Chunk(i, 0, length)] for i, length in enumerate(LENGTHS)]
        steps = steps_of(LENGTHS, seed) if seed else whole
        fused = over_cache(model, sequences.num_blocks, 16, dtype, silent())
        states = run(fused, [sequences.batch(step) for step in steps])
        tokens = {}
        for step, rows in zip(steps, states, strict=True):
            places = [(c.sequence, p) for c in step for p in range(c.begin, c.end)]
            tokens |= dict(zip(places, rows.unbind(), strict=True))
        results.append(torch.stack([tokens[place] for place in sorted(tokens)]))
    assert results[0].isfinite().all()
    assert torch.equal(results[1], results[0])
    assert torch.equal(results[2], results[0])


@pytest.mark.parametrize("pool", pools(2))
def test_layer_by_layer_equals_all_at_once(pool: KernelPool, folder: Folders) -> None:
    sequences = Sequences(LENGTHS, 16, VOCAB)
    batches = [sequences.batch(step) for step in steps_of(LENGTHS, seed=1)]
    model = fused_model(folder("llama"), pool, torch.bfloat16)
    states, caches, num_calls = [], [], []
    for is_following in (False, True):
        calls = Calls(Follower(is_following))
        fused = over_cache(model, sequences.num_blocks, 16, torch.bfloat16, calls.watch)
        counted = count_steps(fused)
        states.append(torch.cat(run(fused, batches)))
        layers = fused.kv_cache.layers
        caches.append([x.nan_to_num() for layer in layers for x in (layer.key, layer.value)])
        num_calls.append(len(counted))
        # Whoever shows that the worker gets on, or follows, hears of every layer.
        assert calls.num_advances == calls.follower.num_layers == 3 * len(batches)
    assert num_calls == [len(batches), 3 * len(batches)]
    assert torch.equal(states[0], states[1])
    assert all(map(torch.equal, *caches))


def count_steps(fused: Any) -> list[tuple[int, int]]:
    """Return a list of the (first, last) layers of each call that `fused` makes from now on."""
    calls: list[tuple[int, int]] = []
    pool = fused._pool

    class Counted:
        def __getattr__(self, name: str) -> Any:
            return getattr(pool, name)

        def step(self, *arguments: Any) -> None:
            calls.append(arguments[3:5])
            pool.step(*arguments)

    fused._pool = Counted()
    return calls


@pytest.mark.parametrize("pool", pools(1))
def test_a_call_does_not_take_long(
    pool: KernelPool, folder: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker shows that it gets on between two calls: many tokens are fewer layers in each."""
    sequences = Sequences((200,), 16, VOCAB)
    model = fused_model(folder("llama"), pool, torch.float32)
    fused = over_cache(model, sequences.num_blocks, 16, torch.float32, silent())
    calls = count_steps(fused)
    of_two_layers = 2 * fused._work.seconds(150)
    monkeypatch.setattr(fused_backend, "CALL_SECONDS", of_two_layers)
    run(fused, [sequences.batch([Chunk(0, 0, 150)])])
    assert calls == [(0, 2), (2, 3)]
    calls.clear()
    monkeypatch.setattr(fused_backend, "CALL_SECONDS", of_two_layers / 1000)
    run(fused, [sequences.batch([Chunk(0, 150, 200)])])
    assert calls == [(0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize("pool", pools(2))
def test_only_the_states_asked_for(pool: KernelPool, folder: Folders) -> None:
    sequences = Sequences(LENGTHS, 16, VOCAB)
    batch = sequences.batch([Chunk(i, 0, length) for i, length in enumerate(LENGTHS)])
    model = fused_model(folder("qwen2"), pool, torch.float32)
    fused = over_cache(model, sequences.num_blocks, 16, torch.float32, silent())
    (every,) = run(fused, [batch])
    wanted = torch.tensor([len(every) - 1, 0, 5, 5])
    assert torch.equal(fused.forward(replace(batch, output_rows=wanted)), every[wanted])
    none = fused.forward(replace(batch, output_rows=wanted[:0]))
    assert none.shape == (0, 64)
    assert fused.logits(none).shape == (0, VOCAB)
    assert fused.greedy(none).token_ids.shape == (0,)


@pytest.mark.parametrize("pool", pools(2))
def test_a_small_fault_is_seen(pool: KernelPool, folder: Folders) -> None:
    """What the comparison with torch could not see would prove nothing."""
    sequences = Sequences(LENGTHS, 16, VOCAB)
    batches = [sequences.batch(step) for step in steps_of(LENGTHS, seed=1)]
    states = []
    for angle in (0.0, 1e-3):
        model = fused_model(folder("llama"), pool, torch.float32)
        assert model.decoder.layers[0].rotary is not None
        model.decoder.layers[0].rotary[0][7:] -= angle  # layers share the table
        fused = over_cache(model, sequences.num_blocks, 16, torch.float32, silent())
        states.append(torch.cat(run(fused, batches)))
    assert differences(states[1], states[0]).max() > 10 * TOLERANCE
