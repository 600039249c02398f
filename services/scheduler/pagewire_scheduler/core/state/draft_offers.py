"""Drafts that a worker has of the sequences that run on it, as of their newest results."""

from pagewire_scheduler.core.state.request import Sequence


class DraftOffers:
    """How many drafts the next plan may let the worker verify, by sequence.

    While there are any, the worker gets a step only when it has none: a draft is for the place
    behind the newest token, and that is known when all steps have returned.
    """

    __slots__ = ("_num_drafts",)

    def __init__(self) -> None:
        self._num_drafts: dict[Sequence, int] = {}

    def __len__(self) -> int:
        return len(self._num_drafts)

    def of(self, sequence: Sequence) -> int:
        """Return the drafts for the places behind the newest token of `sequence`."""
        return self._num_drafts.get(sequence, 0)

    def note(self, sequence: Sequence, num_drafts: int) -> None:
        """Take over the offer of the newest result of `sequence`."""
        if num_drafts:
            self._num_drafts[sequence] = num_drafts
        else:
            self._num_drafts.pop(sequence, None)

    def drop(self, sequence: Sequence) -> None:
        """Forget `sequence`, which stops running."""
        self._num_drafts.pop(sequence, None)
