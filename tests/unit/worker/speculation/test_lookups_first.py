"""Predictions of requests before the drafts of a model."""

import numpy as np

from pagewire_worker.speculation.lookups import Lookups
from pagewire_worker.speculation.lookups_first import LookupsFirst
from pagewire_worker.speculation.proposer import LATER, DraftRequest


class OneSlot:
    """Finds a draft for slot 1."""

    def begin(self, slot, start): ...
    def release(self, slot): ...
    def clear(self): ...

    def find(self, slot, tokens, most):
        return [7] * most if slot == 1 else ()


class Model:
    draft_seconds = 0.5

    def __init__(self):
        self.asked = []

    def prepare(self, asked, most, seconds):
        self.asked.append([one.slot for one in asked])
        return [LATER if one.slot == 2 else most for one in asked]

    def propose(self, asked, counts):
        self.asked.append([one.slot for one in asked])
        return [[one.slot] * count for one, count in zip(asked, counts, strict=True)]


def requests(*slots):
    return [DraftRequest(slot, np.array([1, 2], dtype=np.int32)) for slot in slots]


def test_a_model_is_asked_for_what_cannot_be_looked_up():
    model = Model()
    proposer = LookupsFirst(Lookups([OneSlot()]), model)
    assert proposer.prepare(requests(0, 1, 2, 3), 4, 0.1) == [4, 4, LATER, 4]
    assert proposer.propose(requests(0, 1, 3), [2, 1, 3]) == [[0, 0], [7], [3, 3, 3]]
    assert model.asked == [[0, 2, 3], [0, 3]]
    assert proposer.draft_seconds == 0.5


def test_a_model_is_left_alone_where_all_is_looked_up():
    model = Model()
    proposer = LookupsFirst(Lookups([OneSlot()]), model)
    assert proposer.prepare(requests(1), 4, 0.1) == [4]
    assert proposer.propose(requests(1), [3]) == [[7, 7, 7]]
    assert model.asked == []


class Grammars:
    """Forbids 3 everywhere; slots from 2 on have to go on with 5 and 6."""

    def forced(self, slot, most):
        return [5, 6][:most] if slot >= 2 else ()

    def allowed(self, slot, drafts):
        return drafts[: drafts.index(3)] if 3 in drafts else drafts


def test_what_is_forced_is_drafted_unless_more_was_found():
    proposer = Lookups([OneSlot()], Grammars())
    asked = requests(0, 1, 2)
    assert proposer.prepare(asked, 4, 0.1) == [0, 4, 2]
    assert proposer.propose(asked, [4, 4, 1]) == [(), [7, 7, 7, 7], [5]]


def test_drafts_of_a_model_end_where_a_grammar_forbids_them():
    model = Model()
    proposer = LookupsFirst(Lookups([OneSlot()], Grammars()), model, Grammars())
    assert proposer.prepare(requests(0, 2, 3), 4, 0.1) == [4, 2, 2]
    model.propose = lambda asked, counts: [[1, 3, 1]]
    assert proposer.propose(requests(0, 2), [3, 2]) == [[1], [5, 6]]
