"""What the executor tells a source of masks, when, and what it does with the masks."""

import numpy as np
import pytest
import torch

from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams
from pagewire_worker.plan.plan_error import PlanError
from pagewire_worker.sampling.grammar_bitmask import GrammarBitmask, require_tokens, unpack_bits
from support.cells.worker_driver import GREEDY, PROMPT, Driver, Running, request
from support.fakes.scripted_masks import ScriptedMasks

WORDS, DIGITS = b"words of a page.", b"digits of a sum."
SCRIPTS = {
    WORDS: [{3, 300, 511}, {31, 32, 33}, {64}, {1, 2}],
    DIGITS: [set(range(40, 50)), {50}],
}


@pytest.fixture
def masks() -> ScriptedMasks:
    return ScriptedMasks(dict(SCRIPTS))


@pytest.fixture
def masked(llama, masks) -> Driver:
    """A Driver whose executor follows the grammars of `masks`."""
    llama.model_runner._grammars = masks
    return llama


def following(slot, grammar_id=WORDS, **fields):
    return request(slot, grammar_id=grammar_id, **fields)


def names(masks):
    return [call[0] for call in masks.calls]


def test_output_stays_within_the_masks(masked):
    sampled = SamplingParams(seed=3, temperature=2.0, max_tokens=None)
    (free,) = masked.generate([PROMPT], max_tokens=6)
    sequences = [
        Running(0, PROMPT, GREEDY, 6),
        Running(1, PROMPT, GREEDY, 6, grammar_id=WORDS),
        Running(2, PROMPT[:9], sampled, 6, grammar_id=DIGITS),
        Running(3, PROMPT, sampled, 6, grammar_id=WORDS),
    ]
    masked.finish(sequences, budget=50)
    assert sequences[0].output == free
    for sequence in sequences[1:]:
        script = SCRIPTS[sequence.grammar_id]
        for place, token in enumerate(sequence.output):
            assert token in script[min(place, len(script) - 1)]


def test_masks_are_begun_before_and_awaited_after_the_forward_pass(masked, masks, monkeypatch):
    forward = masked.model_runner.backend.forward

    def watched(batch):
        masks.calls.append(("forward",))
        return forward(batch)

    monkeypatch.setattr(masked.model_runner.backend, "forward", watched)
    result = masked.run_well([(4, 0, 40, 1, 0)], new_sequences=[following(4)])
    assert masks.calls == [
        ("install", 4),
        ("begin", [4], [0]),
        ("forward",),
        ("wait",),
        ("accept", [4], result.token_ids.tolist()),
    ]


def test_a_plan_is_told_in_order(masked, masks):
    masked.run_well([(0, 0, 40, 1, 0)], new_sequences=[following(0)])
    masks.calls.clear()
    masked.freed = [0]
    masked.run_well(
        [(1, 0, 40, 1, 0), (2, 40, 0, 1, 0)],
        released_grammars=[DIGITS],
        new_sequences=[following(1)],
        fork_slots=[2],
        fork_sources=[1],
        fork_choices=[1],
    )
    assert masks.calls[:4] == [("release", DIGITS), ("free", 0), ("install", 1), ("fork", 2, 1)]
    assert masks.calls[4] == ("begin", [1, 2], [0, 0])
    assert masks.followed == {1: WORDS, 2: WORDS}
    masked.model_runner.drop_slots()
    assert masks.calls[-1] == ("clear",)


def test_only_slots_that_sample_are_named(masked, masks):
    pooled = request(2, pooling=PoolingParams(), blocks=[6, 7, 8])
    new = [following(0), request(1, blocks=[3, 4, 5]), pooled]
    masked.run_well([(2, 0, 40, 1, 0), (0, 0, 30, 0, 0), (1, 0, 40, 1, 0)], new_sequences=new)
    assert ("begin", [1], [0]) in masks.calls
    masks.calls.clear()
    masked.run_well([(0, 30, 5, 0, 0)])
    assert masks.calls == []


def test_what_a_failed_plan_freed_stays_free(masked, masks):
    masked.run_well([(0, 0, 40, 1, 0)], new_sequences=[following(0)])
    masks.calls.clear()
    masked.freed = [0]
    assert masked.run([(5, 0, 40, 1, 0)]).failure is not None
    assert masks.calls == [("free", 0)]


def test_a_slot_that_does_not_exist_is_not_passed_on(masked, masks):
    masked.freed = [4000]
    assert "slot 4000 does not exist" in masked.run([]).failure.message
    assert masks.calls == []


def test_a_grammar_that_is_not_here_fails_the_slot(masked):
    new = [following(0, b"?" * 16), request(1, blocks=[3, 4, 5])]
    rows = [(0, 0, 40, 1, 0), (1, 0, 40, 1, 0)]
    result = masked.run(rows, new_sequences=new)
    assert result.failure.culprit_slots == (0,)
    assert masked.model_runner.audit().slots == ()


def test_a_mask_that_cannot_be_computed_fails_its_slot(masked, masks):
    masks.failing_slots = {0}
    result = masked.run([(0, 0, 40, 1, 0)], new_sequences=[following(0)])
    assert result.failure.culprit_slots == (0,)
    masks.failing_slots = set()
    masks.calls.clear()
    result = masked.run_well([(0, 0, 40, 1, 0)], new_sequences=[following(0)])
    assert int(result.token_ids[0]) in SCRIPTS[WORDS][0]
    assert names(masks) == ["install", "begin", "wait", "accept"]


def test_a_mask_of_nothing_fails_its_slot(masked, masks):
    masks.grammars[DIGITS] = [set()]
    new = [following(0), following(1, DIGITS, blocks=[3, 4, 5])]
    result = masked.run([(0, 0, 40, 1, 0), (1, 0, 40, 1, 0)], new_sequences=new)
    assert "slots [1]: their grammars allow no token" in result.failure.message
    assert result.failure.culprit_slots == (1,)


def test_what_a_source_refuses_to_accept_fails_the_step(masked, masks, monkeypatch):
    def refuse(slots, token_ids):
        raise PlanError("slot 0: not in its grammar", (0,))

    with monkeypatch.context() as patch:
        patch.setattr(masks, "accept", refuse)
        result = masked.run([(0, 0, 40, 1, 0)], new_sequences=[following(0)])
    assert result.failure.culprit_slots == (0,)
    assert masked.model_runner.audit().slots == ()


def test_a_grammar_that_was_never_compiled_is_refused(llama):
    result = llama.run([(0, 0, 40, 1, 0)], new_sequences=[following(0)])
    assert "slot 0: grammar" in result.failure.message
    assert "is not compiled here" in result.failure.message
    assert result.failure.culprit_slots == (0,)
    llama.run_well([(0, 0, 40, 1, 0)], new_sequences=[request(0)])
    llama.model_runner.drop_slots()


def bits_of(tokens, num_words):
    words = np.zeros(num_words, dtype=np.uint32)
    for token in tokens:
        words[token // 32] |= np.uint32(1 << token % 32)
    return words.view(np.int32)


@pytest.mark.parametrize(("num_words", "vocab"), [(2, 64), (2, 40), (2, 70), (3, 70), (1, 20)])
def test_bits(num_words, vocab):
    generator = np.random.default_rng(num_words + vocab)
    tokens = [set(generator.integers(0, 32 * num_words, 30).tolist()) for _ in range(4)]
    tokens.append({31, 32 * num_words - 1})
    bits = np.stack([bits_of(one, num_words) for one in tokens])
    bits.flags.writeable = False
    allowed = unpack_bits(GrammarBitmask(np.arange(5), bits), vocab, torch.device("cpu"))
    assert allowed.shape == (5, vocab)
    for line, one in zip(allowed, tokens, strict=True):
        assert line.nonzero().flatten().tolist() == sorted(t for t in one if t < vocab)


@pytest.mark.parametrize(
    ("tokens", "vocab", "is_empty"),
    [
        ({0}, 40, False),
        ({39}, 40, False),
        ({40}, 40, True),
        ({63}, 64, False),
        ({63}, 63, True),
        (set(), 64, True),
        ({31}, 200, False),
    ],
)
def test_masks_need_a_token_of_the_vocabulary(tokens, vocab, is_empty):
    masks = GrammarBitmask(np.array([1, 0]), np.stack([bits_of(tokens, 2), bits_of({1}, 2)]))
    slots = np.array([7, 9])
    if not is_empty:
        require_tokens(masks, slots, vocab)
        return
    with pytest.raises(PlanError) as caught:
        require_tokens(masks, slots, vocab)
    assert caught.value.culprit_slots == (9,)
