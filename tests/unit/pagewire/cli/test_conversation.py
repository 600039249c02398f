"""The commands of `pagewire chat`, without a terminal or a model."""

from pathlib import Path

import pytest

from pagewire.cli.conversation import COMMANDS, Conversation, UnknownCommandError
from pagewire.client.events import Closed, Timings, Usage
from pagewire_shared.errors import InvalidRequestError


def contents(conversation: Conversation) -> list[tuple[str, str]]:
    return [(turn.role, turn.content) for turn in conversation.turns]


def test_turns_and_instructions() -> None:
    conversation = Conversation({}, "Be short")
    conversation.ask("hi")
    conversation.answered("ho")
    assert contents(conversation) == [("system", "Be short"), ("user", "hi"), ("assistant", "ho")]
    conversation.ask("too long")
    conversation.take_back()
    conversation.command("/system Be long")
    assert contents(conversation)[0] == ("system", "Be long")
    assert len(conversation.turns) == 3
    conversation.command("/clear")
    assert contents(conversation) == [("system", "Be long")]
    conversation.command("/system")
    assert conversation.turns == []
    conversation.command("/bye")
    assert conversation.is_over


def test_parameters_are_checked_when_they_are_set() -> None:
    conversation = Conversation({"max_tokens": 5}, None)
    assert conversation.command("/set temperature 0.5") == "temperature: 0.5"
    assert conversation.command("/set stop end") == "stop: end"
    assert conversation.sampling == {"max_tokens": 5, "temperature": 0.5, "stop": "end"}
    with pytest.raises(InvalidRequestError, match="temperature"):
        conversation.command("/set temperature 9")
    with pytest.raises(UnknownCommandError, match="temprature"):
        conversation.command("/set temprature 0.5")
    conversation.command("/set temperature")
    assert "temperature" not in conversation.command("/show")


def test_a_conversation_is_saved_and_loaded(tmp_path: Path) -> None:
    first, second = Conversation({}, "Be short"), Conversation({}, None)
    first.ask("Grüße")
    file = tmp_path / "turns.json"
    first.command(f"/save {file}")
    second.command(f"/load {file}")
    assert second.turns == first.turns
    file.write_text('{"a": 1}')
    with pytest.raises(UnknownCommandError, match="holds no conversation"):
        second.command(f"/load {file}")
    with pytest.raises(OSError, match="none"):
        second.command(f"/load {tmp_path}/none")


def test_statistics_and_help() -> None:
    conversation = Conversation({}, None)
    assert conversation.command("/stats") == "nothing is answered yet"
    conversation.last = Closed(Usage(7, 11, 3), Timings(0.5, 2.5, 0, 1))
    assert conversation.command("/stats") == (
        "7 prompt tokens, 3 of them cached; 11 answered; first after 0.500 s, then 5.0 a second;"
        " 1 recoveries"
    )
    shown = conversation.command("/help")
    assert all(name in shown for name, (_, text) in COMMANDS.items() if text)
    with pytest.raises(UnknownCommandError, match="/foo is no command"):
        conversation.command("/foo bar")
