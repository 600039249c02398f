"""Masks that follow sequences: slots, tokens and masking are those of a real step, the logits are
random."""

import json
import time
from collections import Counter

import pytest
import torch

from pagewire_shared.identity.model_files import ModelFiles
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams as Params
from support.cells.grammar_bench import EOS, MODEL, VOCAB, Bench
from support.oracles.grammars import LANGUAGES


@pytest.fixture
def bench():
    made = Bench()
    yield made
    made.table.shutdown()


def text_of(bench, tokens):
    return bench.compiler.tokenizer.decode_bytes(tokens).decode("utf-8")


def is_right(accepts, text):
    try:
        return accepts(text)
    except (ValueError, TypeError, KeyError):
        return False


def test_masked_random_outputs_are_right_and_others_are_not(bench):
    """Ten languages, 24 outputs each, in slots that are used again, mixed with free ones."""
    ids = [bench.compile(language.params) for language in LANGUAGES]
    generator = torch.Generator().manual_seed(3)
    waiting = [*range(len(LANGUAGES))] * 24
    running, texts, free = {}, {number: [] for number in range(len(LANGUAGES))}, [*range(30)]
    bench.install(30, None)
    while waiting or running:
        while waiting and free:
            slot, number = free.pop(0), waiting.pop()
            bench.install(slot, ids[number])
            running[slot] = number
        slots = [30, *running]
        tokens = bench.step(slots, generator)
        for slot, token in zip(slots[1:], tokens[1:], strict=True):
            if token == EOS:
                texts[running.pop(slot)].append(text_of(bench, bench.output(slot)[:-1]))
                bench.free(slot)
                free.append(slot)
        if len(bench.output(30)) > 500:
            bench.free(30)
            bench.install(30, None)
    for number, language in enumerate(LANGUAGES):
        wrong = [text for text in texts[number] if not is_right(language.accepts, text)]
        assert wrong == [], language.name
        assert len(texts[number]) == 24
    several = [language.name for n, language in enumerate(LANGUAGES) if len(set(texts[n])) > 2]
    assert len(several) == len(LANGUAGES)
    # The same dice without masks leave the language at once.
    free_texts = [
        text_of_any(bench, torch.randn((20, VOCAB), generator=generator).argmax(dim=1).tolist())
        for _ in range(100)
    ]
    for language in LANGUAGES:
        assert not any(is_right(language.accepts, text) for text in free_texts)


def text_of_any(bench, tokens):
    return bench.compiler.tokenizer.decode_bytes(tokens).decode("utf-8", errors="replace")


def test_multi_byte_choices_come_about_whole(bench):
    """Of an emoji in bytes every token is masked to what can still become one."""
    choice = ("😀👍🏽", "日本", "né", "нет")
    grammar_id = bench.compile(Params(choice=choice))
    generator = torch.Generator().manual_seed(1)
    seen = Counter()
    for _ in range(40):
        bench.install(0, grammar_id)
        while bench.step([0], generator) != [EOS]:
            pass
        seen[text_of(bench, bench.output(0)[:-1])] += 1
        bench.free(0)
    assert set(seen) <= set(choice)
    assert len(seen) > 2


def test_rows_without_a_grammar_are_not_named(bench):
    grammar_id = bench.compile(Params(choice=("a",)))
    bench.install(3, None)
    assert bench.masks([3]) is None
    bench.install(5, grammar_id)
    bench.install(7, grammar_id)
    masks = bench.masks([3, 7, 5])
    assert masks.rows.tolist() == [1, 2]
    assert masks.bits.shape == (2, VOCAB // 32)


def test_two_slots_with_one_grammar_go_their_own_ways(bench):
    grammar_id = bench.compile(Params(choice=("ax", "by")))
    bench.install(0, grammar_id)
    bench.install(1, grammar_id)
    (a,), (b,) = bench.ids("a"), bench.ids("b")
    bench.masks([0, 1])
    bench.write([0, 1], [a, b])
    assert bench.allowed(0) == set(bench.ids("x"))
    assert bench.allowed(1) == set(bench.ids("y"))


def test_a_slot_used_again_follows_only_its_new_request(bench):
    first, second = (bench.compile(Params(choice=(text,))) for text in ("ab", "cd"))
    bench.install(0, first)
    bench.masks([0])
    bench.write([0], bench.ids("a"))
    bench.free(0)
    bench.install(0, second)
    assert bench.allowed(0) & set(bench.ids("c"))
    # A failed plan installed it, and the slot was never freed here.
    bench.slots.free(0)
    bench.install(0, None)
    assert bench.masks([0]) is None
    bench.table.clear()
    assert bench.masks([0]) is None


def test_behind_the_end_only_ends_are_allowed(tmp_path):
    """All of the model's ends, at the end and for as long as a sequence ignores them."""
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        (tmp_path / name).write_bytes((MODEL / name).read_bytes())
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 1, 9999]}))
    bench = Bench()
    bench.compiler._files = ModelFiles.of_folder(tmp_path)
    ends = {1, 2, 3}
    closed, open_end = (bench.compile(Params(regex=text)) for text in ("a", "ab?"))
    (a,) = bench.ids("a")
    for grammar_id, further in ((closed, set()), (open_end, set(bench.ids("b")))):
        bench.install(0, grammar_id)
        assert not bench.allowed(0) & ends
        bench.write([0], [a])
        assert bench.allowed(0) == ends | further
        for end in (3, 1, 2, 2):
            bench.write([0], [end])
            assert bench.allowed(0) == ends
        emitted = bench.output(0)
        bench.free(0)
        bench.install(0, grammar_id, emitted)
        assert bench.allowed(0) == ends
        bench.write([0], [a])
        given_up = bench.masks([0]).given_up
        while 0 not in given_up:
            # On a busy machine the token is read later.
            time.sleep(0.01)
            given_up = bench.masks([0]).given_up
        assert "after the end" in given_up[0]
        bench.free(0)
    bench.table.shutdown()
