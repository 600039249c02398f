"""What an evaluation is made of: cells with their floors, finished chats, and the questions asked;
plain data.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from builtin_recipe.conversation import Conversation
from builtin_recipe.wording import Draw

MIN_STORY_WORDS: Final = 20


@dataclass(frozen=True, slots=True)
class Floor:
    """The least share of right answers, for wordings of training and for those held out."""

    trained: float
    held_out: float

    def of_side(self, is_held_out: bool) -> float:
        """Return the floor of one side of the hold-out."""
        return self.held_out if is_held_out else self.trained


@dataclass(frozen=True, slots=True)
class Example:
    """A finished chat whose last answer is judged.

    `topic` is None where the answer has to be exactly the last turn; else the answer is judged as a
    story of at least `min_words` words, and `topic` holds the words it was to be about (empty:
    about anything).
    """

    conversation: Conversation
    topic: tuple[str, ...] | None = None
    min_words: int = MIN_STORY_WORDS


@dataclass(frozen=True, slots=True)
class Cell:
    """One row of the table; `size` between 0 and 1 steers the length of lists.

    Main cells are those that a training run follows, long ones hold a thousand tokens a prompt.
    """

    name: str
    skill: str
    draw: Callable[[Draw], Example]
    floor: Floor | None = None
    size: float = 0.5
    is_main: bool = False
    is_long: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """One prompt: `turns` end with the user's, earlier answers are the right ones.

    `wanted` is the right answer, or one right story where `topic` is not None (see `Example`).
    """

    cell: str
    is_held_out: bool
    turns: Conversation
    wanted: str
    max_tokens: int
    topic: tuple[str, ...] | None = None
    min_words: int = MIN_STORY_WORDS
