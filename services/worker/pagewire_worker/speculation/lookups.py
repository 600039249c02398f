"""A proposer that looks drafts up: finders are asked in turn, for one sequence at a time."""

from collections.abc import Sequence
from typing import Protocol

from pagewire_shared.kv.arrays import Int64Array
from pagewire_worker.speculation.draft_grammars import DraftGrammars, NoGrammars
from pagewire_worker.speculation.proposer import (
    NOTHING,
    DraftRequest,
    Drafts,
    SequenceStart,
    Tokens,
)


class DraftFinder(Protocol):
    """Finds the next tokens of one sequence; events are those of a DraftProposer."""

    def begin(self, slot: int, start: SequenceStart) -> None:
        """Forget the sequence of `slot`, which gets another one."""
        ...

    def release(self, slot: int) -> None:
        """Forget the sequence of `slot`, if there is any."""
        ...

    def clear(self) -> None:
        """Forget all sequences."""
        ...

    def find(self, slot: int, tokens: Tokens, most: int) -> Drafts:
        """Return at most `most` drafts for the places behind `tokens` [n] of `slot`, n >= 1."""
        ...


class Lookups:
    """The DraftProposer of finders: the first one that finds anything for a sequence wins.

    What a grammar forbids counts as not found. Where it leaves no choice about more tokens than
    were found, these are the drafts.
    """

    def __init__(
        self, finders: Sequence[DraftFinder], grammars: DraftGrammars | None = None
    ) -> None:
        self._finders = tuple(finders)
        self._grammars = NoGrammars() if grammars is None else grammars
        self._found: dict[int, Drafts] = {}

    @property
    def draft_seconds(self) -> float:
        """Nothing is computed."""
        return 0.0

    @property
    def follow_seconds(self) -> float:
        """No step is followed."""
        return 0.0

    def reading_seconds(self, asked: Sequence[DraftRequest]) -> list[float]:
        """Nothing is read."""
        return [0.0] * len(asked)

    def begin(self, slot: int, start: SequenceStart) -> None:
        """Forget the sequence of `slot`, which gets another one."""
        for finder in self._finders:
            finder.begin(slot, start)

    def release(self, slot: int) -> None:
        """Forget the sequence of `slot`."""
        for finder in self._finders:
            finder.release(slot)

    def clear(self) -> None:
        """Forget all sequences."""
        for finder in self._finders:
            finder.clear()

    def observe(self, slots: Int64Array, positions: Int64Array) -> None:
        """Follow nothing: tokens are read when drafts are wanted."""

    def prepare(self, asked: Sequence[DraftRequest], most: int, seconds: float) -> list[int]:
        """Find drafts for `asked` [n] and return how many, [n]."""
        self._found = {one.slot: self._find(one, most) for one in asked}
        return [len(self._found[one.slot]) for one in asked]

    def propose(self, asked: Sequence[DraftRequest], counts: Sequence[int]) -> list[Drafts]:
        """Return at most `counts` of what was found, [n] each."""
        return [self._found[one.slot][:count] for one, count in zip(asked, counts, strict=True)]

    def _find(self, asked: DraftRequest, most: int) -> Drafts:
        drafts = NOTHING
        for finder in self._finders:
            found = finder.find(asked.slot, asked.tokens, most)
            if drafts := self._grammars.allowed(asked.slot, found):
                break
        forced = self._grammars.forced(asked.slot, most)
        return forced if len(forced) > len(drafts) else drafts
