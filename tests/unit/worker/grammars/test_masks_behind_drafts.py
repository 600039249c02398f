"""Masks behind drafts are those of the drafts' own places, and leave no trace in the matcher."""

import random

import numpy as np
import pytest

from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams as Params
from pagewire_worker.grammars import mask_jobs
from pagewire_worker.grammars.drafts import TableDrafts
from support.cells.grammar_bench import EOS, Bench
from support.oracles.grammars import LANGUAGES

WORDS = Params(choice=("left turn", "left side", "right"))


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.setattr(mask_jobs, "AHEAD_SECONDS", 10.0)
    monkeypatch.setattr("pagewire_worker.grammars.table.AHEAD_SECONDS", 10.0)
    made = Bench()
    yield made
    made.table.shutdown()


def tokens_of(bits):
    return np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little")).tolist()


def begin(bench, drafts):
    """Begin a step of slots with `drafts` of each; return it and the first row of each."""
    rows, positions, firsts = [], [], {}
    for slot, tokens in drafts.items():
        firsts[slot] = len(rows)
        end = int(bench.slots.num_tokens[slot])
        bench.slots.write_drafts(slot, end, np.array(tokens, dtype=np.int64))
        first = end - int(bench.slots.prompt_lens[slot])
        rows += [slot] * (1 + len(tokens))
        positions += range(first, first + 1 + len(tokens))
    return bench.table.begin(np.array(rows), np.array(positions), bench.slots), firsts


def masks_of(bench, drafts):
    """Return the tokens that each row of each slot may sample; those of rows without a mask are
    missing."""
    while True:
        wait, firsts = begin(bench, drafts)
        masks = wait()
        found = dict(zip(masks.rows.tolist(), map(tokens_of, masks.bits), strict=True))
        late = set(masks.late.tolist())
        assert not late & found.keys()
        if not late & set(firsts.values()):  # a busy machine, or a costly grammar
            break
    return {
        slot: [found[row] for row in range(first, first + 1 + len(drafts[slot])) if row in found]
        for slot, first in firsts.items()
    }


def replayed(bench, grammar_id, output):
    """Return what a new matcher allows behind `output`; None if it is none of the grammar."""
    matcher = bench.compiler._compiled.find(grammar_id).prototype.deep_copy()
    for token in output:
        is_over = matcher.is_stopped()
        if (is_over and token != EOS) or not (is_over or matcher.consume_token(token)):
            return None
    return tokens_of(np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8).copy())


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda one: one.name)
def test_each_row_has_the_mask_of_the_drafts_before_it(bench, language):
    """At every place of random outputs, of which some drafts are accepted and then sampled anew."""
    grammar_id, dice = bench.compile(language.params), random.Random(language.name)
    num_ends = num_forbidden = 0
    for slot in range(5):
        bench.install(slot, grammar_id)
        while not (output := bench.output(slot)) or output[-1] != EOS:
            drafts = []
            while len(drafts) < dice.choice([0, 3, 6]):
                allowed = replayed(bench, grammar_id, output + drafts)
                is_wrong = not allowed or dice.random() < 0.1
                drafts.append(dice.randrange(3072) if is_wrong else dice.choice(allowed))
            masks = masks_of(bench, {slot: drafts})[slot]
            expected = [replayed(bench, grammar_id, output + drafts[:n]) for n in range(7)]
            known = expected[: 1 + len(drafts)]
            known = known[: known.index(None)] if None in known else known
            assert masks == known
            num_ends += any(EOS in mask for mask in known[1:])
            num_forbidden += len(known) <= len(drafts)
            num_right = dice.randrange(len(known))
            for token in [*drafts[:num_right], dice.choice(known[num_right])]:
                bench.write([slot], [token])
                if token == EOS:
                    break
        bench.free(slot)
    assert num_ends > 0
    assert num_forbidden > 0


def test_rows_of_several_slots_keep_to_themselves(bench):
    grammar_id, other_id = bench.compile(WORDS), bench.compile(Params(regex="[ab]{8}c"))
    for slot, name in ((3, grammar_id), (5, None), (1, other_id), (2, grammar_id)):
        bench.install(slot, name)
    left, right, abc = bench.ids("left turn"), bench.ids("right"), bench.ids("a")
    masks = masks_of(bench, {3: left, 5: [7, 8], 1: abc * 2, 2: right[:1]})
    for slot, name, drafts in (
        (3, grammar_id, left),
        (1, other_id, abc * 2),
        (2, grammar_id, right[:1]),
    ):
        rows = [replayed(bench, name, drafts[:number]) for number in range(1 + len(drafts))]
        assert masks[slot] == rows
    assert masks[5] == []
    assert masks[3][-1] == [EOS]


def test_a_mask_that_an_earlier_step_began_counts_for_its_own_drafts_only(bench):
    """A step that fails is planned again, with other drafts or fewer."""
    grammar_id = bench.compile(WORDS)
    bench.install(0, grammar_id)
    turn, side = bench.ids("left turn"), bench.ids("left side")
    num_same = sum(1 for one, other in zip(turn, side, strict=False) if one == other)
    assert len(masks_of(bench, {0: turn})[0]) == 1 + len(turn)
    masks = masks_of(bench, {0: side})[0]
    assert masks == [replayed(bench, grammar_id, side[:number]) for number in range(1 + num_same)]
    assert len(masks_of(bench, {0: []})[0]) == 1
    bench.write([0], side[:1])
    assert len(masks_of(bench, {0: side[1:]})[0]) == len(side)


def test_costly_grammars_and_tenants_without_spare_credit_have_no_masks_behind_drafts(bench):
    slow, quick = bench.compile(WORDS), bench.compile(LANGUAGES[1].params)
    bench.install(0, slow)
    bench.install(1, quick)
    bench.compiler._compiled.find(slow).mask_seconds = 1.0
    credit = bench.table._slots[1].bill.credit
    bench.table._note_others(np.array([1, 9]))
    credit.left(credit.others_at)
    credit.seconds = 0.02
    left = bench.ids("left")
    assert len(masks_of(bench, {0: left})[0]) == 1
    tokens = replayed(bench, quick, [])[:1]
    assert len(masks_of(bench, {1: tokens})[1]) == 1
    drafts = TableDrafts(bench.table)
    bench.write([0], left[:1])
    assert list(drafts.allowed(0, left[1:])) == []
    assert list(drafts.forced(0, 4)) == []


def test_a_limit_that_only_drafts_exceed_fails_nothing(bench, monkeypatch):
    """The matcher is made anew, and the output goes on."""
    grammar_id = bench.compile(WORDS)
    bench.install(0, grammar_id)
    left = bench.ids("left turn")
    follower = bench.table._slots[0].follower

    def fail(token):
        follower.matcher.consume_token(3071)  # no token of the grammar: an error that stays
        return False

    monkeypatch.setattr(type(follower), "go_ahead", lambda self, token: fail(token))
    assert len(masks_of(bench, {0: left})[0]) == 1
    bench.write([0], left[:1])
    assert masks_of(bench, {0: []})[0] == [replayed(bench, grammar_id, left[:1])]


def test_drafts_end_where_the_grammar_forbids_them_and_what_is_forced_is_found(bench):
    grammar_id, drafts = bench.compile(WORDS), TableDrafts(bench.table)
    bench.install(0, grammar_id)
    bench.install(1, None)
    right = bench.ids("right")
    assert list(drafts.allowed(0, right)) == []  # nothing is known before its first mask
    masks_of(bench, {0: []})
    assert list(drafts.allowed(0, right)) == []  # nor while a step is under way
    bench.write([0], bench.ids("r")[:1])
    forced = list(drafts.forced(0, 9))
    assert bench.compiler.tokenizer.decode_str(bench.output(0) + forced) == "right"
    assert list(drafts.forced(0, 1)) == forced[:1]
    wrong = bench.ids("x")
    assert list(drafts.allowed(0, [*forced, *wrong])) == forced
    assert list(drafts.allowed(0, [*wrong, *forced])) == []
    assert replayed(bench, grammar_id, bench.output(0)) == masks_of(bench, {0: forced})[0][0]
    assert list(drafts.allowed(1, wrong)) == wrong
    assert list(drafts.forced(1, 3)) == []
    for token in forced:
        bench.write([0], [token])
    masks_of(bench, {0: []})
    bench.write([0], [EOS])
    assert list(drafts.forced(0, 3)) == list(drafts.allowed(0, [EOS])) == []
