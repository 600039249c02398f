"""Which prompts are encoded in the event loop: small ones only."""

import pytest

from pagewire_frontend.generation_request import ChatPrompt, TextPrompt
from pagewire_frontend.prompt_encoding import SHORT_CHARS, SHORT_TURNS, is_short

TURN = {"role": "user", "content": "x" * 10}


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (TextPrompt("x" * SHORT_CHARS), True),
        (TextPrompt("x" * (SHORT_CHARS + 1)), False),
        (ChatPrompt([TURN] * SHORT_TURNS), True),
        (ChatPrompt([{"role": "user", "content": ""}] * (SHORT_TURNS + 1)), False),
        (ChatPrompt([{"role": "user", "content": "x" * (SHORT_CHARS + 1)}]), False),
        (ChatPrompt([{"role": "user", "content": [{"type": "text", "text": "x"}]}]), False),
        (ChatPrompt([TURN], tools=[{"type": "function"}]), False),
        (ChatPrompt([TURN], template_arguments={"documents": []}), False),
        (ChatPrompt([{**TURN, "tool_calls": []}]), False),
    ],
)
def test_only_small_prompts_are_short(prompt, expected):
    assert is_short(prompt) is expected
