"""Conversations as plain data and their ChatML text; it never tokenizes."""

from dataclasses import dataclass
from typing import Final, Literal

Role = Literal["system", "user", "assistant"]

END_OF_TEXT: Final = "<|endoftext|>"
TURN_START: Final = "<|im_start|>"
TURN_END: Final = "<|im_end|>"


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """One question of the user and its one right answer."""

    question: str
    answer: str


Conversation = tuple[Turn, ...]


def make_conversation(exchanges: list[Exchange], system: str | None = None) -> Conversation:
    """Return the turns of `exchanges`, behind a system prompt if there is one."""
    turns = [Turn("system", system)] if system is not None else []
    for exchange in exchanges:
        turns += [Turn("user", exchange.question), Turn("assistant", exchange.answer)]
    return tuple(turns)


def chat_text(conversation: Conversation) -> str:
    """Return the ChatML text of a whole conversation, as the chat template renders it."""
    return "".join(f"{TURN_START}{turn.role}\n{turn.text}{TURN_END}\n" for turn in conversation)
