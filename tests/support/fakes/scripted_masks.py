"""A MaskSource whose grammars are lists of sets: the tokens allowed at each place of the output."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from pagewire_shared.kv.arrays import Int64Array
from pagewire_shared.steps.plan import NewSequence
from pagewire_worker.batch.slots import SlotTable
from pagewire_worker.plan.plan_error import PlanError
from pagewire_worker.sampling.grammar_bitmask import GrammarBitmask


@dataclass
class ScriptedMasks:
    """Follows slots by name of their grammar and writes down every call.

    Attributes:
        grammars: Allowed tokens per place, by id; the last set stays.
        vocab_size: Of the model.
        failing_slots: Slots whose masks cannot be computed.
        calls: (name of the method, what it was called with).
        followed: Ids by slot.
    """

    grammars: dict[bytes, list[set[int]]]
    vocab_size: int = 512
    failing_slots: set[int] = field(default_factory=set)
    calls: list[tuple[object, ...]] = field(default_factory=list)
    followed: dict[int, bytes] = field(default_factory=dict)

    def hurry_when(self, is_hurried: Callable[[], bool]) -> None:
        self.calls.append(("hurry_when",))

    def release(self, grammar_ids: Sequence[bytes]) -> None:
        self.calls.append(("release", *grammar_ids))
        for grammar_id in grammar_ids:
            del self.grammars[grammar_id]

    def free(self, slot: int) -> None:
        self.calls.append(("free", slot))
        self.followed.pop(slot, None)

    def install(self, request: NewSequence) -> None:
        self.calls.append(("install", request.slot))
        self.followed.pop(request.slot, None)
        if request.grammar_id is None:
            return
        if request.grammar_id not in self.grammars:
            raise PlanError(f"slot {request.slot}: its grammar is not here", (request.slot,))
        self.followed[request.slot] = request.grammar_id

    def fork(self, slots: Int64Array, sources: Int64Array) -> None:
        self.calls.append(("fork", *slots.tolist(), *sources.tolist()))
        found = [self.followed.get(source) for source in sources.tolist()]
        for slot, grammar_id in zip(slots.tolist(), found, strict=True):
            self.followed.pop(slot, None)
            if grammar_id is not None:
                self.followed[slot] = grammar_id

    def clear(self) -> None:
        self.calls.append(("clear",))
        self.followed.clear()

    def follows(self, slots: Int64Array) -> bool:
        return any(slot in self.followed for slot in slots.tolist())

    def begin(
        self, slots: Int64Array, positions: Int64Array, table: SlotTable
    ) -> Callable[[], GrammarBitmask | None]:
        self.calls.append(("begin", slots.tolist(), positions.tolist()))
        places = list(zip(slots.tolist(), positions.tolist(), strict=True))

        def wait() -> GrammarBitmask | None:
            self.calls.append(("wait",))
            culprits = tuple(slot for slot, _ in places if slot in self.failing_slots)
            if culprits:
                raise PlanError(f"slots {list(culprits)}: no mask", culprits)
            return self._masks(places)

        return wait

    def accept(self, slots: Int64Array, token_ids: Int64Array) -> None:
        self.calls.append(("accept", slots.tolist(), token_ids.tolist()))

    def _masks(self, places: Sequence[tuple[int, int]]) -> GrammarBitmask | None:
        rows, lines = [], []
        for row, (slot, position) in enumerate(places):
            if slot not in self.followed:
                continue
            script = self.grammars[self.followed[slot]]
            rows.append(row)
            words = np.zeros(-(-self.vocab_size // 32), dtype=np.uint32)
            for token in script[min(position, len(script) - 1)]:
                words[token // 32] |= np.uint32(1 << token % 32)
            lines.append(words.view(np.int32))
        return GrammarBitmask(np.array(rows), np.stack(lines)) if rows else None
