"""What a worker with a recurrent state keeps in a cache group: behind each token, the state in the
block of that token. It is made of the state of the token before, and of nothing else."""

from dataclasses import dataclass, field

from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wa
from pagewire_shared.kv.arrays import unpack_u32

ROOT = 7
ABSENT = -1


def state_of(tokens: list[int]) -> int:
    """The state behind `tokens`."""
    state = ROOT
    for token in tokens:
        state = hash((state, token))
    return state


@dataclass
class StateBooks:
    """The states of the last group of two.

    Attributes:
        states: What each block holds.
        problems: Tokens that did not find the state before them.
        num_resumed: Sequences that began behind a cached prefix.
    """

    block_size: int
    states: dict[int, int] = field(default_factory=dict)
    tables: dict[int, list[int]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    num_resumed: int = 0

    def take(self, plan: wa.StepPlan, sequences: dict[int, list[int]]) -> None:
        """Compute a plan; `sequences` are the tokens in each slot."""
        for slot in unpack_u32(plan.freed_slots):
            self.tables.pop(slot, None)
        for new in plan.new_requests:
            _, table = new.block_tables
            self.num_resumed += table.num_before > 0
            self.tables[new.slot] = [*[ABSENT] * table.num_before, *unpack_u32(table.block_ids)]
        sources = [self.tables[source].copy() for source in unpack_u32(plan.fork_sources)]
        self.tables.update(zip(unpack_u32(plan.fork_slots), sources, strict=True))
        slots, fresh = unpack_u32(plan.slots), iter(unpack_u32(plan.new_block_ids))
        for slot, count in zip(slots, unpack_u32(plan.num_new_blocks), strict=True):
            of_groups = [[next(fresh) for _ in range(count)] for _ in range(2)]
            self.tables[slot] += of_groups[1]
        copies = (plan.copy_slots, plan.copy_sources, plan.copy_destinations)
        for slot, source, destination in zip(*map(unpack_u32, copies), strict=True):
            if source in self.tables[slot]:  # else it is of the other group
                self.tables[slot][self.tables[slot].index(source)] = destination
                self.states[destination] = self.states[source]
        rows = zip(slots, unpack_u32(plan.starts), unpack_u32(plan.num_new_tokens), strict=True)
        for slot, start, count in rows:
            if count:
                self._compute(self.tables[slot], sequences[slot][: start + count], start)

    def _compute(self, table: list[int], tokens: list[int], start: int) -> None:
        state = self.states.get(table[(start - 1) // self.block_size]) if start else ROOT
        if state != state_of(tokens[:start]):
            self.problems.append(f"the state behind {start} of {tokens} is not there")
        for position, token in enumerate(tokens[start:], start):
            state = hash((state, token))
            self.states[table[position // self.block_size]] = state
