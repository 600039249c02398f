"""The DraftGrammars of a worker: what grammars say of drafts before a step verifies them.

Matchers are brought to the end of their outputs for it, which the next masks then spare. Nothing is
said of costly grammars, nor while the tenant of a sequence has no credit: they have no drafts.
"""

import time
from collections.abc import Callable

from llguidance import LLMatcher

from pagewire_worker.grammars.table import GrammarTable
from pagewire_worker.speculation.proposer import NOTHING, Drafts


class TableDrafts:
    """The DraftGrammars of the slots of `table`."""

    def __init__(self, table: GrammarTable) -> None:
        self._table = table

    def forced(self, slot: int, most: int) -> Drafts:
        """Return at most `most` tokens that the grammar of `slot` leaves no choice about."""
        return self._ask(slot, lambda matcher: matcher.compute_ff_tokens()[:most])

    def allowed(self, slot: int, drafts: Drafts) -> Drafts:
        """Return `drafts` up to the first one that the grammar of `slot` forbids."""
        if not drafts or not self._table.has_grammar(slot):
            return drafts
        tokens = list(drafts)
        return self._ask(slot, lambda matcher: tokens[: matcher.validate_tokens(tokens)])

    def _ask(self, slot: int, ask: Callable[[LLMatcher], Drafts]) -> Drafts:
        """Return what `ask` says of the matcher of `slot`; nothing where there is no time."""
        began = time.thread_time()
        follower = self._table.quick_follower(slot)
        if follower is None:
            return NOTHING
        found = NOTHING if follower.matcher.is_stopped() else ask(follower.matcher)
        # A limit that only a guess exceeds is no fault of the output.
        follower.go_back()
        self._table.charge(slot, time.thread_time() - began)
        return found
