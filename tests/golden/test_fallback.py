"""Architectures that run through transformers: tokens, logits and hidden states equal transformers'
own in float32, whatever lies between prompt and token."""

import functools
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from support.cells.worker_driver import GREEDY, Driver, Running, load
from support.checkpoints.fallback_checkpoints import SERVED, VOCAB, make_served_checkpoint

BLOCK_SIZE = 8
NUM_TOKENS = 24
LENGTHS = (1, 41, 3, 90, 17, 64, 2, 33)
TOLERANCE = 5e-5
NEAR_TIE = 1e-4


@dataclass(frozen=True)
class Case:
    """A checkpoint, its model in transformers' plain form and a worker's replica of it."""

    folder: Path
    plain: Any
    driver: Driver

    @property
    def backend(self) -> Any:
        return self.driver.model_runner.backend

    @torch.inference_mode()
    def plain_logits(self, ids: list[int]) -> Tensor:
        """Return [length, vocab]."""
        return self.plain(torch.tensor([ids]), use_cache=False).logits[0]

    @torch.inference_mode()
    def plain_states(self, ids: list[int]) -> Tensor:
        """Return [length, hidden]."""
        return self.plain.base_model(torch.tensor([ids]), use_cache=False).last_hidden_state[0]

    def assert_greedy(self, prompt: list[int], output: list[int]) -> None:
        """Every token must be the best one, or as good as it."""
        assert len(output) == NUM_TOKENS
        logits = self.plain_logits([*prompt, *output])[len(prompt) - 1 : -1]
        given = logits.gather(1, torch.tensor(output)[:, None])[:, 0]
        assert (logits.max(-1).values - given).max() < NEAR_TIE
        assert (logits.argmax(-1) == torch.tensor(output)).float().mean() > 0.9


@pytest.fixture(scope="module")
def prepare(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    """Make a checkpoint and load it twice the first time its name is asked for."""
    torch.set_num_threads(1)

    @functools.cache
    def make(name: str) -> Case:
        folder = make_served_checkpoint(tmp_path_factory.mktemp("fallback"), name)
        plain = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        )
        replica = load(folder, block_size=BLOCK_SIZE, model_impl="transformers")
        assert replica.model_runner.backend.kernel_set.startswith("transformers=")
        return Case(folder, plain.eval(), Driver.of(replica))

    return make


Prepare = Callable[[str], Case]


def make_prompts(seed: int = 3) -> list[list[int]]:
    generator = random.Random(seed)
    return [[generator.randrange(3, VOCAB) for _ in range(length)] for length in LENGTHS]


@pytest.mark.parametrize("name", sorted(SERVED))
def test_mixed_batches_in_chunks(prepare: Prepare, name: str) -> None:
    """Prompts longer than a step's budget, beside sequences that decode."""
    case = prepare(name)
    prompts = make_prompts()
    outputs = case.driver.generate(prompts, max_tokens=NUM_TOKENS, budget=24)
    for prompt, output in zip(prompts, outputs, strict=True):
        case.assert_greedy(prompt, output)
    assert len({tuple(output) for output in outputs}) == len(prompts)


@pytest.mark.parametrize("name", sorted(SERVED))
def test_alone_logits_and_hidden_states(
    prepare: Prepare, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = prepare(name)
    states: list[Tensor] = []
    logits: list[Tensor] = []
    logits_of = case.backend.logits

    def record(hidden: Tensor, *slots: object) -> Tensor:
        states.append(hidden)
        logits.append(logits_of(hidden, *slots))
        return logits[-1]

    monkeypatch.setattr(case.backend, "logits", record)
    prompt = make_prompts(seed=4)[1]
    (output,) = case.driver.generate([prompt], max_tokens=NUM_TOKENS, budget=16)
    ids = [*prompt, *output]
    expected = case.plain_logits(ids)[len(prompt) - 1 : -1]
    found = torch.cat([one for one in logits if len(one)])
    torch.testing.assert_close(found, expected, atol=TOLERANCE, rtol=1e-4)
    assert output == expected.argmax(-1).tolist()
    hidden = torch.cat([one for one in states if len(one)])
    wanted = case.plain_states(ids)[len(prompt) - 1 : -1]
    torch.testing.assert_close(hidden, wanted, atol=TOLERANCE, rtol=1e-4)
    assert case.backend.embedding_size == wanted.shape[-1]


@pytest.mark.parametrize("name", sorted(SERVED))
def test_computed_again_after_preemption(prepare: Prepare, name: str) -> None:
    """One sequence loses slot and blocks in the middle; what it has is computed in other pieces."""
    case = prepare(name)
    driver = case.driver
    prompts = [make_prompts(seed=5)[index] for index in (3, 1)]
    sequences = [Running(slot, p, GREEDY, NUM_TOKENS) for slot, p in enumerate(prompts)]
    while len(sequences[0].output) < 7:
        driver.step(sequences, budget=64)
    driver.preempt(sequences[0])
    while any(len(sequence.output) < NUM_TOKENS for sequence in sequences):
        driver.step([s for s in sequences if len(s.output) < NUM_TOKENS], budget=21)
    for sequence in sequences:
        driver.release(sequence)
        case.assert_greedy(list(sequence.prompt), sequence.output)


def test_a_llama_equals_the_native_decoder(prepare: Prepare) -> None:
    case = prepare("llama")
    native = Driver.of(load(case.folder, block_size=BLOCK_SIZE))
    assert "transformers" not in native.model_runner.backend.kernel_set
    prompts = make_prompts(seed=6)
    outputs = [
        driver.generate(prompts, max_tokens=NUM_TOKENS, budget=40)
        for driver in (case.driver, native)
    ]
    assert outputs[0] == outputs[1]


def damage_block(layer: Any, blocks: list[int]) -> None:
    layer.value[blocks[2]] = layer.value[blocks[0]]


def shift_position(layer: Any, blocks: list[int]) -> None:
    for states in (layer.key, layer.value):
        states[blocks[2], 3] = states[blocks[2], 2].clone()


@pytest.mark.parametrize("damage", [damage_block, shift_position])
@pytest.mark.parametrize("name", ["gpt-neox", "gpt2"])
def test_damage_shows(prepare: Prepare, name: str, damage: Callable[..., None]) -> None:
    """What the comparisons above could not see would prove nothing."""
    driver = prepare(name).driver
    prompt = make_prompts(seed=7)[1]
    (undisturbed,) = driver.generate([prompt], max_tokens=NUM_TOKENS)
    sequence = Running(0, prompt, GREEDY, NUM_TOKENS)
    driver.step([sequence], budget=64)
    with torch.inference_mode():
        for layer in driver.model_runner.backend.kv_cache.layers:
            damage(layer, sequence.blocks)
    while len(sequence.output) < NUM_TOKENS:
        driver.step([sequence], budget=64)
    driver.release(sequence)
    assert sequence.output != undisturbed


def test_windows_keep_the_whole_cache(prepare: Prepare) -> None:
    """Layers with and without a window share one block table: no block is given back early."""
    case = prepare("gemma2")
    (group,) = case.backend.kv_cache.layout()
    assert group.window is None
    kinds = [layer.kind.window for layer in case.backend._model.layers]
    assert kinds == [9, None, 9, None]
