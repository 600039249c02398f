"""Logits and greedy tokens equal to transformers in float32, for every kind of batch."""

import random

import pytest
import torch
from transformers import AutoModelForCausalLM

from pagewire_worker.backend.sampled_tokens import SampledTokens
from pagewire_worker.checkpoint.weights import SafetensorsReader
from pagewire_worker.layers.linear import _can_pack
from support.cells.worker_driver import GREEDY, Running

pytestmark = pytest.mark.usefixtures("poisoned_kernels")

VARIANT_NAMES = ["llama", "llama3-rope-sharded", "llama-linear-rope-bias", "qwen2-tied", "qwen3"]
TOLERANCE = 2e-5


def prompts_of(lengths, seed=1):
    generator = random.Random(seed)
    return [[generator.randrange(512) for _ in range(length)] for length in lengths]


@pytest.fixture(scope="module")
def oracle(checkpoint):
    """Return a function that gives transformers' logits [length, vocab] of a sequence."""
    models = {}

    def logits(name, ids):
        if name not in models:
            model = AutoModelForCausalLM.from_pretrained(checkpoint(name), dtype=torch.float32)
            models[name] = model.eval()
        with torch.inference_mode():
            return models[name](torch.tensor([ids])).logits[0]

    return logits


@pytest.fixture
def captured(monkeypatch):
    """Record (rows of logits) of every step of executors made afterwards."""
    steps = []

    def record(driver):
        backend = driver.model_runner.backend
        logits_of = backend.logits

        def wrapped(hidden, *slots):
            steps.append(logits_of(hidden, *slots))
            return steps[-1]

        def greedy(hidden, *slots):
            return SampledTokens(wrapped(hidden, *slots).argmax(dim=1))

        monkeypatch.setattr(backend, "logits", wrapped)
        monkeypatch.setattr(backend, "greedy", greedy)
        return steps

    return record


@pytest.mark.parametrize("attention", ["reference", "sdpa", "triton"])
@pytest.mark.parametrize("name", VARIANT_NAMES)
def test_logits_of_chunks_and_decodes(name, attention, driver, oracle, captured):
    # The interpreter takes a second for a few tokens.
    length, num_outputs = (19, 3) if attention == "triton" else (37, 12)
    (prompt,) = prompts_of([length])
    one = driver(name, attention_backend=attention, block_size=8)
    steps = captured(one)
    sequence = Running(slot=3, prompt=prompt, sampling=GREEDY, max_tokens=num_outputs)
    while len(sequence.output) < num_outputs:
        one.step([sequence], budget=16)
    expected = oracle(name, prompt + sequence.output)
    sampled = [logits for logits in steps if len(logits)]
    assert len(sampled) == num_outputs
    for index, logits in enumerate(sampled):
        wanted = expected[len(prompt) + index - 1]
        torch.testing.assert_close(logits[0], wanted, atol=TOLERANCE, rtol=1e-4)
        assert sequence.output[index] == int(wanted.argmax())


@pytest.mark.parametrize("block_size", [8, 16])
@pytest.mark.parametrize("attention", ["reference", "sdpa"])
def test_mixed_batches_change_nothing(attention, block_size, driver, oracle):
    prompts = prompts_of([1, 3, 90, 17, 16, 40, 2, 64])
    one = driver("qwen2-tied", attention_backend=attention, block_size=block_size)
    outputs = one.generate(prompts, max_tokens=10, budget=48)
    for prompt, output in zip(prompts, outputs, strict=True):
        expected = oracle("qwen2-tied", prompt + output)[len(prompt) - 1 : -1].argmax(-1)
        assert output == expected.tolist()


def test_alone_equals_batched(driver):
    prompts = prompts_of([1, 33, 80, 5, 16, 12])
    one = driver("llama", block_size=16)
    together = one.generate(prompts, max_tokens=12, budget=512)
    alone = [one.generate([prompt], max_tokens=12, budget=512)[0] for prompt in prompts]
    assert together == alone


def test_a_foreign_block_changes_the_output(driver):
    (prompt,) = prompts_of([60])
    one = driver("llama", block_size=16)
    (undisturbed,) = one.generate([prompt], max_tokens=12)
    sequence = Running(slot=0, prompt=prompt, sampling=GREEDY, max_tokens=12)
    one.step([sequence], budget=64)
    with torch.inference_mode():
        for layer in one.model_runner.backend.kv_cache.layers:
            layer.value[sequence.blocks[1]] = layer.value[sequence.blocks[0]]
    while len(sequence.output) < 12:
        one.step([sequence], budget=64)
    assert sequence.output != undisturbed


def test_two_tensors_swapped_change_the_logits(driver, captured, monkeypatch):
    (prompt,) = prompts_of([20])
    right = driver("llama")
    expected = right.generate([prompt], max_tokens=4)
    read = SafetensorsReader._read

    def swapped(self, name, shape):
        return read(self, name.replace("k_proj", "v_proj"), shape)

    monkeypatch.setattr(SafetensorsReader, "_read", swapped)
    monkeypatch.setattr(SafetensorsReader, "finish", lambda self: None)
    assert driver("llama").generate([prompt], max_tokens=4) != expected


def test_bfloat16_runs_and_stays_close(driver, oracle, captured):
    (prompt,) = prompts_of([50])
    one = driver("qwen3", dtype="bfloat16")
    steps = captured(one)
    one.generate([prompt], max_tokens=1)
    expected = oracle("qwen3", prompt)[-1]
    assert steps[0].dtype == torch.float32
    correlation = torch.corrcoef(torch.stack((steps[0][0], expected)))[0, 1]
    assert correlation > 0.99


def test_packed_linear_layers_equal_torch(driver, captured):
    if not _can_pack(torch.device("cpu"), torch.bfloat16):
        pytest.skip("this CPU does not compute in bfloat16")
    (prompt,) = prompts_of([40])
    logits = []
    for linear in ("torch", "packed"):
        one = driver("llama-linear-rope-bias", dtype="bfloat16", linear_backend=linear)
        steps = captured(one)
        sequence = Running(slot=0, prompt=prompt, sampling=GREEDY, max_tokens=1)
        one.step([sequence], budget=64)
        logits.append(steps[-1])
    torch.testing.assert_close(logits[1], logits[0], atol=0.1, rtol=0.05)
