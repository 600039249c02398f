"""Grammars in steps of an executor: what is planned, fails, is forked and sampled again."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pagewire_shared.identity.model_files import ModelFiles
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams as Params
from pagewire_worker.batch.slots import SlotLimits
from pagewire_worker.loading.loader import make_grammars
from pagewire_worker.runner.model_runner import ModelRunner
from support.cells.worker_driver import GREEDY, PROMPT, Driver, Running, request
from support.oracles.grammars import LANGUAGES
from support.source_tree import ROOT

MODEL = ROOT / "pagewire" / "builtin_model"
VOCAB, EOS = 3072, 2
BLOCKS, BLOCK_SIZE = 256, 16
RANDOM = SamplingParams(temperature=1.0, seed=11, max_tokens=None)


class DiceBackend:
    """A model whose logits are a function of the last token and its position."""

    kernel_set = "dice"
    embedding_size = 2
    # Nothing is ever read from it, so copies need not be made.
    kv_cache = SimpleNamespace(copy_blocks=lambda sources, destinations: None)

    def __init__(self):
        self.num_failures = 0

    def forward(self, batch):
        if self.num_failures:
            self.num_failures -= 1
            raise RuntimeError("the model is ill")
        rows = batch.output_rows
        return torch.stack((batch.token_ids[rows], batch.positions[rows]), dim=1).float()

    def logits(self, hidden, *_):
        rows = []
        for token, position in hidden.long().tolist():
            generator = torch.Generator().manual_seed(token * 4099 + position)
            rows.append(torch.randn(VOCAB, generator=generator) * 4)
        return torch.stack(rows)


class Rig:
    """An executor with dice for a model, a driver for it, and its grammars."""

    def __init__(self):
        self.backend = DiceBackend()
        self.grammars = make_grammars(ModelFiles.of_folder(MODEL), VOCAB)
        limits = SlotLimits(
            num_slots=32,
            num_blocks=BLOCKS,
            block_size=BLOCK_SIZE,
            max_model_len=512,
            vocab_size=VOCAB,
        )
        model_runner = ModelRunner(
            backend=self.backend,
            limits=limits,
            max_num_batched_tokens=512,
            device=torch.device("cpu"),
            grammars=self.grammars.table,
        )
        self.driver = Driver(model_runner, num_blocks=BLOCKS, block_size=BLOCK_SIZE)

    def compile(self, params):
        asyncio.run(self.grammars.compiler.compile(params.digest, params))
        return params.digest

    def text(self, tokens):
        return self.grammars.compiler.tokenizer.decode_bytes(tokens).decode()

    def ids(self, text):
        return self.grammars.compiler.tokenizer.tokenize_str(text)

    def finish(self, *sequences):
        """Run sequences to their ends of sequence, and return their texts."""
        while running := [s for s in sequences if not (s.output and s.output[-1] == EOS)]:
            self.driver.step(running, 512)
        for sequence in sequences:
            self.driver.release(sequence)
        return [self.text(sequence.output[:-1]) for sequence in sequences]


@pytest.fixture
def rig():
    made = Rig()
    yield made
    made.grammars.table.shutdown()


def running(slot, grammar_id, sampling=GREEDY):
    return Running(slot, PROMPT[: 5 + slot], sampling, 500, grammar_id=grammar_id)


def test_outputs_of_mixed_steps_are_in_their_languages(rig):
    ids = [rig.compile(language.params) for language in LANGUAGES]
    for sampling in (GREEDY, RANDOM):
        sequences = [running(slot, grammar_id, sampling) for slot, grammar_id in enumerate(ids)]
        texts = rig.finish(*sequences)
        assert [lang.accepts(text) for lang, text in zip(LANGUAGES, texts, strict=True)] == (
            [True] * len(LANGUAGES)
        )
        alone = [rig.finish(running(slot, one, sampling))[0] for slot, one in enumerate(ids)]
        assert alone == texts


def test_steps_that_fail_in_the_model_change_no_output(rig):
    grammar_id = rig.compile(LANGUAGES[0].params)
    (expected,) = rig.finish(running(0, grammar_id))
    sequence = running(0, grammar_id)
    rig.driver.step([sequence], 512)
    blocks = sequence.blocks
    while sequence.output[-1] != EOS:
        needed = -(-sequence.num_tokens // BLOCK_SIZE) - len(blocks)
        new = [rig.driver.free_blocks.pop() for _ in range(needed)]
        row = (0, sequence.num_tokens - 1, 1, 1, len(new))
        rig.backend.num_failures = 1
        assert rig.driver.run([row], new_block_ids=new).failure is not None
        result = rig.driver.run_well([row], new_block_ids=new)
        blocks.extend(new)
        sequence.output.extend(int(token) for token in result.token_ids)
    assert rig.text(sequence.output[:-1]) == expected


def test_only_the_slot_at_fault_is_named_and_the_others_go_on(rig):
    grammar_id = rig.compile(Params(choice=("left", "right")))
    rows = [(slot, 0, len(PROMPT) + (slot == 2), 1, 0) for slot in (1, 2, 3)]
    requests = {
        slot: request(slot, blocks=[slot * 4 + k for k in range(4)], grammar_id=grammar_id)
        for slot in (1, 3)
    }
    wrong = request(
        2, blocks=[8, 9, 10, 11], grammar_id=grammar_id, emitted_token_ids=rig.ids("x")[:1]
    )
    result = rig.driver.run_well(rows, new_sequences=[requests[1], wrong, requests[3]])
    assert (list(result.slots), list(result.counts)) == ([1, 2, 3], [1, 0, 1])
    assert len(result.token_ids) == 2
    assert list(result.given_up) == [2]


def test_a_released_grammar_cannot_be_named_any_more(rig):
    grammar_id = rig.compile(Params(choice=("left", "right")))
    first = running(0, grammar_id)
    rig.driver.step([first], 512)
    rig.driver.run_well([], released_grammars=[grammar_id])
    result = rig.driver.run(
        [(1, 0, len(PROMPT), 1, 0)], new_sequences=[request(1, grammar_id=grammar_id)]
    )
    assert list(result.failure.culprit_slots) == [1]
    assert "not compiled here" in result.failure.message
    # What follows it already goes on.
    assert rig.finish(first) in (["left"], ["right"])


def test_choices_forked_with_the_prompt_follow_the_grammar(rig):
    grammar_id = rig.compile(LANGUAGES[0].params)
    num = len(PROMPT)
    blocks = [0, 1, 2]
    first = request(0, blocks=blocks, grammar_id=grammar_id, sampling=RANDOM)
    result = rig.driver.run_well(
        [(0, 0, num, 1, 0), (1, num, 0, 1, 0)],
        new_sequences=[first],
        fork_slots=[1],
        fork_sources=[0],
        fork_choices=[1],
    )
    outputs = {0: [int(result.token_ids[0])], 1: [int(result.token_ids[1])]}
    position, next_block = num, 3
    while any(output[-1] != EOS for output in outputs.values()):
        slots = [slot for slot, output in outputs.items() if output[-1] != EOS]
        is_full = position % BLOCK_SIZE == 0
        new = [next_block + k for k in range(len(slots))] if is_full else []
        next_block += len(new)
        rows = [(slot, position, 1, 1, int(is_full)) for slot in slots]
        result = rig.driver.run_well(rows, new_block_ids=new)
        for slot, token in zip(slots, np.asarray(result.token_ids).tolist(), strict=True):
            outputs[slot].append(token)
        position += 1
    texts = [rig.text(output[:-1]) for output in outputs.values()]
    assert all(LANGUAGES[0].accepts(text) for text in texts)
    assert texts[0] != texts[1]
