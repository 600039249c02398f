"""Interface of proposers: they guess the next tokens of sequences.

A proposer is asked twice per step: first how many drafts there could be, then for those that are
worth their time. One that finds tokens by looking them up finds them the first time; one that
computes them does so the second time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from pagewire_shared.kv.arrays import Int64Array
from pagewire_shared.steps.columns import Ints

Tokens = npt.NDArray[np.int32]
"""The tokens of one sequence, prompt and output, [n]; a view that must not be written or kept."""

Drafts = Sequence[int]
"""Guessed tokens for the places behind a sequence, [n]."""

NOTHING: Final[Drafts] = ()

LATER: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceStart:
    """What proposers know of a sequence when it comes to the worker.

    Attributes:
        scope: Tenant and cache salt: only sequences of one scope share guesses.
        num_prompt: Tokens of its prompt.
        num_tokens: Tokens that are known of it, prompt and output.
        predicted_token_ids: What the client expects its output to be; empty for nothing.
    """

    scope: tuple[str, bytes] = ("", b"")
    num_prompt: int = 0
    num_tokens: int = 0
    predicted_token_ids: Ints = ()


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """A sequence that drafts are wanted for.

    Attributes:
        slot: Its slot.
        tokens: Its tokens, [n], n at least 1.
    """

    slot: int
    tokens: Tokens


class DraftProposer(Protocol):
    """Guesses tokens. A wrong guess costs time and changes no output.

    All calls come from the model thread. Events of a step that fails are not taken back: a
    sequence is what its tokens say. Nothing here raises.
    """

    @property
    def draft_seconds(self) -> float:
        """Seconds to compute one more draft for all sequences; 0 if drafts are looked up."""
        ...

    @property
    def follow_seconds(self) -> float:
        """Seconds of `observe` for a step without prompts; 0 if it does nothing."""
        ...

    def reading_seconds(self, asked: Sequence[DraftRequest]) -> list[float]:
        """Return the seconds to read what is unread of each of `asked` [n], [n]: it has no drafts
        before."""
        ...

    def begin(self, slot: int, start: SequenceStart) -> None:
        """Forget the sequence of `slot`, which gets another one."""
        ...

    def release(self, slot: int) -> None:
        """Forget the sequence of `slot`, if there is any: it has left."""
        ...

    def clear(self) -> None:
        """Forget all sequences."""
        ...

    def observe(self, slots: Int64Array, positions: Int64Array) -> None:
        """Follow a step that is committed, of tokens at `positions` of `slots`, [tokens] each.

        Steps may be left out while drafts are not worth their time.
        """
        ...

    def prepare(self, asked: Sequence[DraftRequest], most: int, seconds: float) -> list[int]:
        """Return how many drafts each of `asked` [n] could have, from 0 to `most`, [n].

        LATER stands for 0 of a sequence that is to be prepared again at its next token.

        Args:
            seconds: Time of the step before, by which longer work may be bounded.
        """
        ...

    def propose(self, asked: Sequence[DraftRequest], counts: Sequence[int]) -> list[Drafts]:
        """Return drafts for the places behind the tokens of `asked` [n], at most `counts` [n].

        `asked` are those that were prepared just before, or some of them.
        """
        ...
