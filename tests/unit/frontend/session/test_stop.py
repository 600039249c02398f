"""Stop strings: cut exactly, however the text arrives."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagewire_frontend.session.choice_text import StopMatcher


def run(stops, pieces, *, is_kept=False):
    matcher = StopMatcher(stops, is_kept=is_kept)
    shown = ""
    for piece in pieces:
        match = matcher.push(piece)
        shown += match.text
        if match.stop is not None:
            return shown, match.stop
    return shown + matcher.flush(), None


@pytest.mark.parametrize(
    ("stops", "pieces", "expected"),
    [
        ([], ["abc"], ("abc", None)),
        (["END"], ["one E", "N", "D two"], ("one ", "END")),
        (["END"], ["one EN"], ("one EN", None)),
        (["END"], ["EEND"], ("E", "END")),
        (["aab"], ["aa", "ab"], ("a", "aab")),
        (["abc", "b"], ["abc"], ("a", "b")),
        (["b", "ab"], ["xab"], ("x", "ab")),
        (["\n\n"], ["a\n", "b\n", "\n"], ("a\nb", "\n\n")),
        (["€"], ["10", "€"], ("10", "€")),
        (["stop"], ["", "st", "", "op"], ("", "stop")),
    ],
)
def test_matches(stops, pieces, expected):
    assert run(stops, pieces) == expected


def test_the_match_can_be_kept():
    assert run(["END"], ["xEN", "Dy"], is_kept=True) == ("xEND", "END")


def test_only_what_could_be_a_beginning_is_held_back():
    matcher = StopMatcher(["END"])
    assert matcher.push("abE").text == "ab"
    assert matcher.push("x").text == "Ex"
    assert matcher.push("EN").text == ""
    assert matcher.push("E").text == "EN"


TEXT = st.text(alphabet="ab\n", max_size=20)


@given(
    st.lists(st.text(alphabet="ab\n", min_size=1, max_size=4), max_size=4),
    TEXT,
    st.lists(st.integers(0, 20), max_size=8),
)
def test_how_the_text_is_cut_makes_no_difference(stops, text, cuts):
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(borders)]
    assert run(stops, pieces) == run(stops, list(text))
    shown, stop = run(stops, pieces)
    if stop is None:
        assert shown == text
        assert not any(item in text for item in stops)
    else:
        assert text.startswith(shown + stop)
        assert not any(item in shown for item in stops)
