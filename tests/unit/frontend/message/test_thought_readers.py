"""Thoughts in the text of models, in any cut, and the scanner of the JSON behind them."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagewire_frontend.message.hermes import HermesFormat
from pagewire_frontend.message.json_scanner import JsonScanner
from pagewire_frontend.message.reasoning import REASONING_FORMATS, ThoughtReader
from support.checkpoints.message_texts import Read, cut, read

F = '{"name": "f", "arguments": {"a": 1}}'
ONE = ("f", '{"a": 1}')


def thinking(text: Sequence[str], name: str = "qwen3", *, is_open: bool = False) -> Read:
    return read(
        ThoughtReader(
            HermesFormat().new_reader({"f"}, max_calls=None),
            REASONING_FORMATS[name],
            is_open=is_open,
        ),
        text,
    )


CALL = f"<tool_call>\n{F}\n</tool_call>"


@pytest.mark.parametrize(
    ("text", "is_open", "expected"),
    [
        ("<think>\nhm hm\n</think>\n\nYes.", False, Read("hm hm", "Yes.", ())),
        ("\n<think></think>Yes", False, Read("", "Yes", ())),
        ("hm\n\nhm</think>Yes", True, Read("hm\n\nhm", "Yes", ())),
        ("<think>hm</think>Yes", True, Read("hm", "Yes", ())),
        (f"hm</think>\n{CALL}", True, Read("hm", "", (ONE,))),
        ("<think>cut off <", False, Read("cut off <", "", ())),
        ("never closed ", True, Read("never closed", "", ())),
        ("No <think>at all</think>.", False, Read("", "No <think>at all</think>.", ())),
        (" <thin", False, Read("", " <thin", ())),
        ("", True, Read("", "", ())),
        ("<think>a</think>b</think>c", False, Read("a", "b</think>c", ())),
    ],
)
def test_thoughts(text: str, is_open: bool, expected: Read) -> None:
    assert thinking([text], is_open=is_open) == expected
    assert thinking(list(text), is_open=is_open) == expected


@settings(max_examples=150, deadline=None)
@given(
    text=st.lists(
        st.sampled_from(["<think>", "</think>", "<", "/think>", "\n", " ", "x", CALL, "th"]),
        max_size=12,
    ).map("".join),
    places=st.lists(st.integers(0, 200), max_size=8),
    is_open=st.booleans(),
)
def test_any_cut_of_thoughts_gives_the_same(text: str, places: list[int], is_open: bool) -> None:
    whole = thinking([text], is_open=is_open)
    assert thinking(cut(text, places), is_open=is_open) == whole
    assert thinking(list(text), is_open=is_open) == whole


@settings(max_examples=200, deadline=None)
@given(text=st.lists(st.sampled_from([*'{}[]:,"\\ntu019-.eE+ ', "true", "null"]), max_size=14))
def test_the_scanner_knows_json(text: list[str]) -> None:
    """What it takes whole is what json takes whole."""
    whole = "{" + "".join(text)
    scanner = JsonScanner()
    taken = scanner.feed(whole)
    if scanner.is_complete:
        json.loads(whole[:taken])
    for end in range(1, len(whole) + 1):
        try:
            json.loads(whole[:end])
        except ValueError:
            continue
        # A document is found where it first ends.
        assert scanner.is_complete
        assert taken <= end
        break
