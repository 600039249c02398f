"""Layers and caches of 8-bit floats: close to those of the model's own type, and moved bit by bit.

In Triton's interpreter; torch._scaled_mm has a CPU form.
"""

import random

import pytest
import torch
from unit.worker.models.test_experts import states_of
from unit.worker.triton_kernels.device_casts import round_as_devices_do

from pagewire_worker.backend.sampled_tokens import SampledTokens
from pagewire_worker.checkpoint.dtypes import FP8
from pagewire_worker.kv.block_copy import copy_out, fill_staging, make_staging, write_blocks
from pagewire_worker.kv.kv_cache import CacheShape, KvCache
from pagewire_worker.kv.layer_copy import (
    block_index,
    bytes_per_layer,
    copy_layers_in,
    copy_layers_out,
)
from pagewire_worker.layers.fp8_linear import Fp8Linear
from support.cells.worker_driver import GREEDY, Running
from support.oracles.family_checkpoints import make_family_checkpoint
from support.oracles.kernels import quantize_rows_oracle
from support.products import cases_of

pytestmark = pytest.mark.usefixtures("poisoned_kernels")

CPU = torch.device("cpu")
TOLERANCES = {torch.float16: 2e-3, torch.bfloat16: 2e-2}
SMALL = {
    "attention_backend": "triton",
    "block_size": 8,
    "max_num_batched_tokens": 8,
    "max_num_seqs": 2,
    "max_model_len": 64,
}
NAMES = ["llama-linear-rope-bias", "qwen2-tied", "qwen3"]


@pytest.fixture(autouse=True)
def rounded(monkeypatch):
    round_as_devices_do(monkeypatch)


def widened(x):
    """What is left of `x` in 8-bit floats, in float64."""
    quantized, scales = quantize_rows_oracle(x)
    return quantized.double() * scales.double()


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("seed", range(10))
def test_a_layer_is_the_product_of_what_was_quantized(seed, dtype):
    torch.manual_seed(seed)
    dice = random.Random(seed)
    num_rows, num_inputs = dice.choice([1, 2, 5, 17]), 16 * dice.randint(1, 20)
    num_outputs = 16 * dice.randint(1, 8)
    # Rows and outputs of very different size: one scale for all would lose the small ones.
    x = torch.randn(num_rows, num_inputs) * 10.0 ** torch.randint(-2, 3, (num_rows, 1))
    weight = torch.randn(num_outputs, num_inputs) * 10.0 ** torch.randint(-2, 1, (num_outputs, 1))
    x, weight = x.to(dtype), weight.to(dtype)
    bias = torch.randn(num_outputs).to(dtype) if dice.random() < 0.5 else None
    expected = widened(x) @ widened(weight).T + (0 if bias is None else bias.double())
    found = Fp8Linear(weight, bias)(x)
    assert found.dtype == dtype
    tolerance = TOLERANCES[dtype]
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


def test_a_layer_of_no_rows():
    assert Fp8Linear(torch.randn(32, 16).half(), None)(torch.empty(0, 16).half()).shape == (0, 32)


@pytest.fixture
def logits_of(driver, checkpoint):
    """Return a function that gives logits [outputs, vocab] of a prompt in chunks, then decodes of
    tokens that are given, and the driver."""

    def run(name, prompt, **settings):
        one = driver(name, **{**SMALL, **settings})
        backend, steps = one.model_runner.backend, []
        logits = backend.logits

        def greedy(hidden, *_):
            steps.extend(logits(hidden))
            # The same token whatever the logits, so that two runs can be compared.
            return SampledTokens(torch.full((len(hidden),), len(steps) + 40))

        backend.greedy = greedy
        sequence = Running(slot=1, prompt=prompt, sampling=GREEDY, max_tokens=2)
        while len(sequence.output) < 2:
            one.step([sequence], budget=8)
        return torch.stack(steps), one

    return run


def prompt_of(length):
    dice = random.Random(length)
    return [dice.randrange(512) for _ in range(length)]


def assert_close_but_not_equal(found, expected, least):
    assert not torch.equal(found, expected)
    for one, other in zip(found, expected, strict=True):
        correlation = torch.corrcoef(torch.stack((one, other)))[0, 1]
        assert correlation > least, correlation


@pytest.mark.parametrize("name", cases_of(NAMES, ["llama-linear-rope-bias"]))
def test_weights_of_eight_bits_stay_close(name, logits_of):
    prompt = prompt_of(13)
    settings = {"dtype": "float16", "attention_backend": "sdpa"}
    expected, _ = logits_of(name, prompt, **settings)
    found, one = logits_of(name, prompt, quantization="fp8", **settings)
    assert one.model_runner.backend.kernel_set == "torch,attention=sdpa,linear=fp8"
    assert_close_but_not_equal(found, expected, least=0.98)


@pytest.mark.parametrize("name", cases_of(NAMES, ["qwen2-tied"]))
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_cache_of_eight_bits_stays_close(name, dtype, logits_of):
    prompt = prompt_of(13)
    expected, plain = logits_of(name, prompt, dtype=dtype)
    found, one = logits_of(name, prompt, dtype=dtype, kv_cache_dtype="fp8_e4m3")
    assert_close_but_not_equal(found, expected, least=0.99)
    assert one.model_runner.backend.kernel_set.endswith(",kv=float8_e4m3fn")
    (group,) = one.model_runner.backend.kv_cache.layout()
    (wide,) = plain.model_runner.backend.kv_cache.layout()
    assert group.dtype == "float8_e4m3fn"
    assert group.bytes_per_block * (4 if dtype == "float32" else 2) == wide.bytes_per_block


def test_a_cache_of_latents_of_eight_bits_stays_close_and_is_exact(tmp_path):
    """Chunks of a prompt, which are decodes at once, beside another one and alone."""
    folder = make_family_checkpoint(tmp_path, "deepseek-v3")
    prompts = [prompt_of(9), prompt_of(4)]
    expected = states_of(folder, prompts[:1], 16, cpu_backend="torch")[-1]
    triton = {name: value for name, value in SMALL.items() if name != "max_model_len"}
    triton |= {"linear_backend": "fixed-tile", "kv_cache_dtype": "fp8_e4m3"}
    (found,) = states_of(folder, prompts[:1], 16, **{**triton, "max_num_batched_tokens": 16})
    assert_close_but_not_equal(found, expected, least=0.99)
    (both,) = states_of(folder, prompts, 8, **triton)
    assert torch.equal(both[:1], found)


@pytest.mark.parametrize("name", cases_of(NAMES, ["qwen3"]))
def test_fixed_tiles_give_the_logits_of_torch(name, logits_of):
    prompt = prompt_of(13)
    expected, _ = logits_of(name, prompt, linear_backend="torch")
    found, _ = logits_of(name, prompt, linear_backend="fixed-tile")
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-5)


def test_weights_and_cache_of_eight_bits_go_together(logits_of):
    prompt = prompt_of(13)
    expected, _ = logits_of("qwen3", prompt, dtype="float16")
    settings = {"dtype": "float16", "quantization": "fp8", "kv_cache_dtype": "fp8_e4m3"}
    found, one = logits_of("qwen3", prompt, **settings)
    names = "triton,attention=triton-free-64,linear=fp8,kv=float8_e4m3fn"
    assert one.model_runner.backend.kernel_set == names
    assert_close_but_not_equal(found, expected, least=0.98)


def test_a_budget_holds_more_blocks_of_eight_bits(replica):
    settings = {**SMALL, "kv_cache_memory": 2**16, "max_model_len": 32, "max_num_seqs": 40}
    wide = replica("llama", **settings).info
    narrow = replica("llama", kv_cache_dtype="fp8_e4m3", **settings).info
    assert narrow.num_blocks == 4 * wide.num_blocks
    assert narrow.numerics_fingerprint != wide.numerics_fingerprint
    assert narrow.cache_groups != wide.cache_groups


SHAPE = CacheShape(num_layers=3, num_kv_heads=2, head_dim=8)
whole_or_not = pytest.mark.parametrize("is_whole", [False, True], ids=["by layer", "whole"])


def random_cache(seed, is_whole=False):
    cache = KvCache(
        shape=SHAPE, num_blocks=10, block_size=4, device=CPU, dtype=FP8, has_whole_blocks=is_whole
    )
    generator = torch.Generator().manual_seed(seed)
    for side in sides(cache):
        # All 256 of them, those that are no number too.
        side.view(torch.uint8).random_(0, 256, generator=generator)
    return cache


def sides(cache):
    return [side for layer in cache.layers for side in (layer.key, layer.value)]


def bits(cache):
    return torch.stack([side.view(torch.uint8) for side in sides(cache)])


@whole_or_not
def test_blocks_of_eight_bits_arrive_as_they_left(is_whole):
    source, target = random_cache(0, is_whole), random_cache(1, is_whole)
    before = bits(target)
    staging = make_staging(source, 5 * source.bytes_per_block)
    payloads = [memoryview(row) for row in copy_out(source, [7, 0, 3], staging).numpy()]
    arrived = fill_staging(target, payloads, make_staging(target, 3 * target.bytes_per_block))
    write_blocks(target, [1, 9, 4], arrived)
    assert torch.equal(bits(source)[:, [7, 0, 3]], bits(target)[:, [1, 9, 4]])
    others = [0, 2, 3, 5, 6, 7, 8]
    assert torch.equal(bits(target)[:, others], before[:, others])


@whole_or_not
def test_layers_of_eight_bits_arrive_as_they_left(is_whole):
    source, target = random_cache(2, is_whole), random_cache(3, is_whole)
    before = bits(target)
    payload = torch.empty(2 * 3 * bytes_per_layer(source), dtype=torch.uint8)
    copy_layers_out(source, block_index(source, [5, 1, 8]), 1, 2, payload)
    copy_layers_in(target, block_index(target, [0, 2, 9]), 1, 2, payload)
    assert torch.equal(bits(source)[2:, [5, 1, 8]], bits(target)[2:, [0, 2, 9]])
    assert torch.equal(bits(target)[:2], before[:2])


@whole_or_not
def test_blocks_of_eight_bits_are_copied_within_a_cache(is_whole):
    cache = random_cache(4, is_whole)
    before = bits(cache)
    cache.copy_blocks(torch.tensor([1, 2]), torch.tensor([2, 5]))
    assert torch.equal(bits(cache)[:, [2, 5]], before[:, [1, 2]])
