"""Interface of grammars to those who guess: which tokens may follow, and which have to."""

from typing import Protocol

from pagewire_worker.speculation.proposer import NOTHING, Drafts


class DraftGrammars(Protocol):
    """Knows the grammars of slots. All calls come from the model thread, between steps."""

    def forced(self, slot: int, most: int) -> Drafts:
        """Return at most `most` tokens that the grammar of `slot` leaves no choice about.

        Their text is certain; the model may cut it into other tokens. Nothing for a slot without a
        grammar, and where finding out would take long.
        """
        ...

    def allowed(self, slot: int, drafts: Drafts) -> Drafts:
        """Return `drafts` up to the first one that the grammar of `slot` forbids.

        All of them for a slot without a grammar; none where finding out would take long.
        """
        ...


class NoGrammars:
    """The DraftGrammars of slots that have none."""

    def forced(self, slot: int, most: int) -> Drafts:
        """Return nothing."""
        return NOTHING

    def allowed(self, slot: int, drafts: Drafts) -> Drafts:
        """Return all `drafts`."""
        return drafts
