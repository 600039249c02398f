"""Models over keys and values of int8: kernels, torch and wide caches against each other; blocks
that move; and where such a cache is refused."""

import random

import pytest
import torch

from pagewire_shared.errors import StartupError
from pagewire_worker.backend.sampled_tokens import SampledTokens
from pagewire_worker.kv.block_copy import copy_out, make_staging, write_blocks
from pagewire_worker.kv.kv_cache import CacheShape, KvCache
from pagewire_worker.kv.scaled_rows import SCALED
from support.cells.worker_driver import GREEDY, Running, load
from support.kernels.fused_kernels import needs_kernels
from support.oracles.family_checkpoints import make_family_checkpoint

CPU = torch.device("cpu")
INT8 = {"kv_cache_dtype": "int8"}
SMALL = {"max_num_batched_tokens": 16, "max_num_seqs": 2, "max_model_len": 128}


@pytest.fixture
def logits_of(driver):
    """Return a function that gives logits [outputs, vocab] of a prompt in chunks, then decodes of
    tokens that are given, and the backend."""

    def run(name, **settings):
        one = driver(name, **{**SMALL, **settings})
        backend, steps = one.model_runner.backend, []

        def greedy(hidden, *_):
            steps.extend(backend.logits(hidden))
            # The same token whatever the logits, so that two runs can be compared.
            return SampledTokens(torch.full((len(hidden),), len(steps) + 40))

        backend.greedy = greedy
        dice = random.Random(3)
        prompt = [dice.randrange(512) for _ in range(70)]
        sequence = Running(slot=1, prompt=prompt, sampling=GREEDY, max_tokens=3)
        while len(sequence.output) < 3:
            one.step([sequence], budget=16)
        return torch.stack(steps), backend

    return run


@needs_kernels
@pytest.mark.parametrize("attention", ["reference", "sdpa"])
@pytest.mark.parametrize("name", ["llama-linear-rope-bias", "qwen3"])
def test_kernels_give_what_torch_gives_over_the_same_bytes(name, attention, logits_of):
    found, fused = logits_of(name, cpu_backend="fused", **INT8)
    settings = {"cpu_backend": "torch", "attention_backend": attention}
    expected, backend = logits_of(name, **settings, **INT8)
    wide, _ = logits_of(name, **settings)
    assert fused.kernel_set.endswith(",kv=int8")
    assert backend.kernel_set.endswith(",kv=int8")
    # A number halfway between two bytes may become either one: the kernels sum in another order.
    assert (found - expected).abs().max() < (wide - expected).abs().max() / 4
    assert not torch.equal(found, wide)
    for one, other in zip(found, wide, strict=True):
        assert torch.corrcoef(torch.stack((one, other)))[0, 1] > 0.999


@needs_kernels
@pytest.mark.parametrize("cpu_backend", ["fused", "torch"])
def test_a_budget_holds_more_blocks(replica, cpu_backend):
    settings = {**SMALL, "kv_cache_memory": 2**19, "max_num_seqs": 400, "dtype": "bfloat16"}
    settings["cpu_backend"] = cpu_backend
    wide = replica("qwen3", **settings).info
    narrow = replica("qwen3", **settings, **INT8).info
    head_dim = 16
    assert narrow.num_blocks / wide.num_blocks == pytest.approx(
        2 * head_dim / (head_dim + 4), rel=0.02
    )
    assert narrow.numerics_fingerprint != wide.numerics_fingerprint
    (group,) = narrow.cache_groups
    assert group.dtype == "int8"


@pytest.mark.parametrize("is_whole", [False, True], ids=["by layer", "whole"])
def test_blocks_take_their_scales_with_them(is_whole):
    torch.manual_seed(0)
    shape = CacheShape(num_layers=2, num_kv_heads=3, head_dim=8)
    one, other = (
        KvCache(
            shape=shape,
            num_blocks=6,
            block_size=4,
            device=CPU,
            dtype=SCALED,
            has_whole_blocks=is_whole,
        )
        for _ in range(2)
    )
    slots = torch.arange(8, 16)
    states = [torch.randn(8, 3, 8) * 10.0 ** torch.randint(-3, 4, (8, 3, 1)) for _ in range(2)]
    for cache in one.layers:
        cache.write(slots, *states)
    assert one.bytes_per_block == 2 * 2 * 4 * 3 * (8 + 4)
    payloads = copy_out(one, [2, 3], make_staging(one, 2 * one.bytes_per_block))
    write_blocks(other, [5, 1], payloads)
    other.copy_blocks(torch.tensor([5]), torch.tensor([4]))
    for layer in other.layers:
        moved = layer.gather(torch.tensor([4, 1]))
        for found, given in zip(moved, states, strict=True):
            error = (found - given).abs().amax(dim=2)
            assert (error <= given.abs().amax(dim=2) / 253).all()


def test_what_is_not_finite_is_stored_as_zero():
    shape = CacheShape(num_layers=1, num_kv_heads=1, head_dim=4)
    cache = KvCache(shape=shape, num_blocks=1, block_size=4, device=CPU, dtype=SCALED)
    faults = torch.zeros(2, dtype=torch.int64)
    key = torch.tensor([[[1.0, 2, 3, 4]], [[1.0, float("inf"), float("nan"), 4]]])
    cache.layers[0].write(torch.tensor([0, 1]), key, torch.ones_like(key), faults)
    assert faults.tolist() == [0, 1]
    found, _ = cache.layers[0].gather_positions(torch.tensor([1]))
    torch.testing.assert_close(found, torch.tensor([[[1.0, 0, 0, 4]]]), rtol=0, atol=4 / 253)


def refusal_of(folder, **settings):
    with pytest.raises(StartupError) as refusal:
        load(folder, **settings, **INT8)
    assert refusal.value.field == "kv_cache_dtype"
    return str(refusal.value)


def test_where_it_is_refused(checkpoint, gpt2, tmp_path):
    assert refusal_of(checkpoint("llama"), attention_backend="triton") == (
        "--kv-cache-dtype: int8 does not go with --attention-backend triton, which has fp8_e4m3"
    )
    said = refusal_of(gpt2)
    assert said == "--kv-cache-dtype: int8 is for models of our own decoder"
    latents = make_family_checkpoint(tmp_path, "deepseek-v3")
    assert refusal_of(latents) == "--kv-cache-dtype: int8 is not for a cache of latents"
