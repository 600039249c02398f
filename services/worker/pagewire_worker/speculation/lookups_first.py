"""A proposer of two: what can be looked up is, and the other one computes the rest."""

from collections.abc import Sequence

from pagewire_shared.kv.arrays import Int64Array
from pagewire_worker.speculation.draft_grammars import DraftGrammars, NoGrammars
from pagewire_worker.speculation.proposer import (
    DraftProposer,
    DraftRequest,
    Drafts,
    SequenceStart,
)


class LookupsFirst:
    """The DraftProposer that asks `lookups`, and `other` for the sequences without drafts.

    Args:
        lookups: Its drafts take no time.
        other: May take time.
        grammars: Say where the drafts of `other` end.
    """

    def __init__(
        self, lookups: DraftProposer, other: DraftProposer, grammars: DraftGrammars | None = None
    ) -> None:
        self._grammars = NoGrammars() if grammars is None else grammars
        self._lookups = lookups
        self._other = other
        self._found: set[int] = set()

    @property
    def other(self) -> DraftProposer:
        """What computes the rest."""
        return self._other

    @property
    def draft_seconds(self) -> float:
        """Seconds to compute one more draft for all sequences."""
        return self._other.draft_seconds

    @property
    def follow_seconds(self) -> float:
        """Seconds to follow a step."""
        return self._other.follow_seconds

    def reading_seconds(self, asked: Sequence[DraftRequest]) -> list[float]:
        """Return the seconds to read what is unread of each of `asked` [n], [n]."""
        return self._other.reading_seconds(asked)

    def begin(self, slot: int, start: SequenceStart) -> None:
        """Forget the sequence of `slot`, which gets another one."""
        self._lookups.begin(slot, start)
        self._other.begin(slot, start)

    def release(self, slot: int) -> None:
        """Forget the sequence of `slot`, if there is any: it has left."""
        self._lookups.release(slot)
        self._other.release(slot)

    def clear(self) -> None:
        """Forget all sequences."""
        self._lookups.clear()
        self._other.clear()

    def observe(self, slots: Int64Array, positions: Int64Array) -> None:
        """Follow a step of tokens at `positions` of `slots`, [tokens] each."""
        self._other.observe(slots, positions)

    def prepare(self, asked: Sequence[DraftRequest], most: int, seconds: float) -> list[int]:
        """Return how many drafts each of `asked` [n] could have, [n]."""
        lengths = self._lookups.prepare(asked, most, seconds)
        self._found = {one.slot for one, length in zip(asked, lengths, strict=True) if length}
        rest = [one for one in asked if one.slot not in self._found]
        computed = iter(self._other.prepare(rest, most, seconds) if rest else ())
        return [length or next(computed) for length in lengths]

    def propose(self, asked: Sequence[DraftRequest], counts: Sequence[int]) -> list[Drafts]:
        """Return drafts for the places behind `asked` [n], at most `counts` [n]."""
        pairs = list(zip(asked, counts, strict=True))
        parts = []
        for proposer, is_found in ((self._lookups, True), (self._other, False)):
            part = [(one, count) for one, count in pairs if (one.slot in self._found) is is_found]
            asked_of = [one for one, _ in part]
            parts.append(
                iter(proposer.propose(asked_of, [count for _, count in part]) if part else ())
            )
        looked_up, computed = parts
        return [
            next(looked_up)
            if one.slot in self._found
            else self._grammars.allowed(one.slot, next(computed))
            for one in asked
        ]
