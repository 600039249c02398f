"""The suffix method: what mostly followed the last tokens, here and in the tenant's last outputs.

This is the rule of SuffixDecoding (Oliaro et al., 2024, arXiv 2411.04975), with the options of
vLLM's `suffix` method: the longest suffix of the sequence that occurs elsewhere is followed by the
likeliest token, by counts, as long as the chance of all drafts together is high enough. A longer
match gives more drafts. The suffix trees of the paper are hash chains of the newest places here,
which take a tenth of the memory; of one node's places only the newest ones are counted.
"""

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from pagewire_worker.speculation.ngram import num_matching
from pagewire_worker.speculation.proposer import NOTHING, Drafts, SequenceStart, Tokens
from pagewire_worker.speculation.tenant_texts import END_OF_OUTPUT, TenantTexts
from pagewire_worker.speculation.token_index import TokenIndex

SHORTEST_MATCH: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SuffixRule:
    """When a draft is likely enough.

    Attributes:
        max_tree_depth: Tokens that are compared at most.
        max_spec_factor: Drafts per token that matches.
        min_token_prob: Chance that all drafts up to one are right, at least.
    """

    max_tree_depth: int = 24
    max_spec_factor: float = 1.0
    min_token_prob: float = 0.1


@dataclass(slots=True)
class _SlotText:
    start: SequenceStart
    index: TokenIndex = field(default_factory=lambda: TokenIndex(SHORTEST_MATCH))
    output: "array[int]" = field(default_factory=lambda: array("i"))


class SuffixFinder:
    """Finds what mostly follows the longest suffix of a sequence.

    Args:
        rule: When a draft is likely enough.
        texts: The last outputs of tenants, to which those of released sequences are added.
    """

    def __init__(self, rule: SuffixRule, texts: TenantTexts) -> None:
        self._rule = rule
        self._texts = texts
        self._slots: dict[int, _SlotText] = {}

    def begin(self, slot: int, start: SequenceStart) -> None:
        """Keep the output of the sequence of `slot`, which gets another one."""
        self.release(slot)
        self._slots[slot] = _SlotText(start)

    def release(self, slot: int) -> None:
        """Keep the output of the sequence of `slot` for its tenant."""
        held = self._slots.pop(slot, None)
        if held is not None:
            self._texts.add(held.start.scope, held.output)

    def clear(self) -> None:
        """Keep the outputs of all sequences."""
        for slot in list(self._slots):
            self.release(slot)

    def find(self, slot: int, tokens: Tokens, most: int) -> Drafts:
        """Return at most `most` drafts for the places behind `tokens` [n]."""
        held = self._slots.get(slot)
        if held is None:
            held = self._slots[slot] = _SlotText(SequenceStart(num_tokens=len(tokens)))
        held.output.extend(tokens[held.start.num_tokens + len(held.output) :].tolist())
        held.index.follow(tokens)
        if len(tokens) < SHORTEST_MATCH:
            return NOTHING
        tail = tokens[-self._rule.max_tree_depth :].tolist()[::-1]
        places: list[tuple[Tokens, int]] = []
        longest = SHORTEST_MATCH
        for text, place in chain(_of(tokens, held.index.places()), self._elsewhere(held, tail)):
            length = num_matching(tail, text, place)
            if length > longest:
                longest, places = length, []
            if length == longest:
                places.append((text, place))
        if not places:
            return NOTHING
        return self._likely(places, min(most, int(self._rule.max_spec_factor * longest)))

    def _elsewhere(self, held: _SlotText, tail: list[int]) -> Iterator[tuple[Tokens, int]]:
        text = self._texts.find(held.start.scope)
        if text is None:
            return iter(())
        return _of(text.tokens, text.places(tail[SHORTEST_MATCH - 1 :: -1]))

    def _likely(self, places: list[tuple[Tokens, int]], most: int) -> Drafts:
        """Return the likeliest tokens behind `places`, newest first, and at most `most`."""
        follows = [text[place : place + most].tolist() for text, place in places]
        drafts: list[int] = []
        chance = 1.0
        for depth in range(most):
            seen = Counter(one[depth] for one in follows if len(one) > depth)
            seen.pop(END_OF_OUTPUT, None)
            if not seen:
                break
            # Of equal counts the first one wins, which is the newest.
            token, count = seen.most_common(1)[0]
            chance *= count / len(follows)
            if chance < self._rule.min_token_prob:
                break
            drafts.append(token)
            follows = [one for one in follows if len(one) > depth and one[depth] == token]
        return drafts


def _of(text: Tokens, places: Iterator[int]) -> Iterator[tuple[Tokens, int]]:
    return ((text, place) for place in places)
