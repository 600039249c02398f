"""The suffix method: what it counts, how far it goes, and whose outputs it sees."""

import numpy as np
import pytest

from pagewire_worker.speculation import tenant_texts
from pagewire_worker.speculation.proposer import SequenceStart
from pagewire_worker.speculation.suffix import SuffixFinder, SuffixRule
from pagewire_worker.speculation.tenant_texts import TenantText, TenantTexts


def array(tokens):
    return np.array(tokens, dtype=np.int32)


def finder(most_outputs=100, **rule):
    return SuffixFinder(SuffixRule(**rule), TenantTexts(2, most_outputs))


def proposed(tokens, most=8, **rule):
    return list(finder(**rule).find(0, array(tokens), most))


def finish(one, output, prompt=(90, 91, 92), slot=5, **start):
    """Run a sequence of its own to its end."""
    one.begin(slot, SequenceStart(num_tokens=len(prompt), **start))
    one.find(slot, array([*prompt, *output]), 1)
    one.release(slot)


def test_a_longer_match_gives_more_drafts():
    assert proposed([1, 2, 3, 4, 5, 6, 7, 8, 0, 2, 3]) == [4, 5]
    assert proposed([1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2, 3, 4]) == [5, 6, 7, 8]
    assert proposed([1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2, 3], max_spec_factor=2.0) == [4, 5, 6, 7, 8, 0]


def test_the_most_frequent_token_wins_and_unlikely_ones_end_the_drafts():
    tokens = [1, 2, 5, 6, 0, 1, 2, 5, 7, 0, 1, 2, 4, 9, 0, 1, 2]
    assert proposed(tokens, max_tree_depth=2) == [5, 7]
    assert proposed(tokens, max_tree_depth=2, min_token_prob=0.5) == [5]
    assert proposed(tokens, max_tree_depth=2, min_token_prob=0.9) == []
    assert proposed([1, 2, 3, 4]) == []


@pytest.mark.parametrize(
    ("scope", "found"),
    [(("a", b"s"), [12, 13]), (("a", b""), []), (("b", b"s"), []), (("", b""), [])],
)
def test_outputs_are_found_by_others_of_the_tenant_and_salt_only(scope, found):
    one = finder()
    finish(one, [10, 11, 12, 13, 14], scope=("a", b"s"))
    one.begin(1, SequenceStart(scope=scope, num_tokens=3))
    assert list(one.find(1, array([5, 10, 11]), 8)) == found


def test_prompts_are_not_kept():
    one = finder()
    finish(one, [20, 21, 22], prompt=[10, 11, 12, 13])
    one.begin(1, SequenceStart(num_tokens=3))
    assert list(one.find(1, array([5, 10, 11]), 8)) == []


def test_drafts_end_where_an_output_ended():
    one = finder()
    finish(one, [10, 11, 12])
    finish(one, [30, 31, 32])
    one.begin(1, SequenceStart(num_tokens=3))
    assert list(one.find(1, array([5, 10, 11]), 8)) == [12]


def test_only_the_last_outputs_and_tenants_are_kept(monkeypatch):
    monkeypatch.setattr(tenant_texts, "MOST_SCOPES", 2)
    one = finder(most_outputs=2)
    for first in (10, 20, 30):
        finish(one, [first, first + 1, first + 2])
    found = [list(one.find(9, array([5, first, first + 1]), 8)) for first in (10, 20, 30)]
    assert found == [[], [22], [32]]
    for tenant in ("a", "b"):
        finish(one, [40, 41, 42], scope=(tenant, b""))
    assert one._texts.find(("", b"")) is None
    assert one._texts.find(("b", b"")) is not None


def test_a_full_text_keeps_its_newest_tokens():
    text = TenantText(2, 1000)
    outputs = [[number, number + 1, 7] * 300 for number in range(100, 200)]
    for output in outputs:
        text.add(output)
        assert len(text.tokens) <= tenant_texts.TEXT_TOKENS
    assert list(text.places([100, 101])) == []
    newest = next(text.places([199, 200]))
    assert text.tokens[newest - 2 : newest + 1].tolist() == [199, 200, 7]
    text.add(range(100_000))
    assert len(text.tokens) <= tenant_texts.TEXT_TOKENS
