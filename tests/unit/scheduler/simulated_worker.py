"""A worker without a model: it keeps what a KV cache would hold and checks every read against the
truth.

A cell of its memory holds (position, digest of salt and all tokens up to there), which is what keys
and values depend on. So a foreign, stale, torn or missing block is seen at the first read, not
merely suspected.
"""

import hashlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pagewire_scheduler.core.step import StepFailure, StepPlan, StepResult
from pagewire_scheduler.core.worker_state import WorkerInfo
from pagewire_shared.ids import BlockName

GARBAGE = (-1, b"garbage")
Cell = tuple[int, bytes]


class BrokenPlanError(AssertionError):
    """The scheduler planned something that would compute a wrong token."""


def require(is_right: bool, message: str) -> None:
    if not is_right:
        raise BrokenPlanError(message)


def extend(digest: bytes, token: int) -> bytes:
    return hashlib.blake2b(digest + token.to_bytes(4, "little"), digest_size=8).digest()


def root(salt: bytes) -> bytes:
    return hashlib.blake2b(b"salt" + salt, digest_size=8).digest()


def sample(digest: bytes, choice: int, vocab_size: int) -> int:
    """The token that follows; choices differ as seeds do."""
    word = hashlib.blake2b(digest + bytes([choice]), digest_size=4).digest()
    return int.from_bytes(word, "little") % vocab_size


@dataclass
class Slot:
    request_id: bytes
    choice: int
    tokens: list[int]
    digests: list[bytes]
    blocks: list[int]
    num_computed: int
    is_tainted: bool = False

    def append(self, token: int) -> None:
        self.tokens.append(token)
        self.digests.append(extend(self.digests[-1], token))


@dataclass
class SimulatedWorker:
    info: WorkerInfo
    salts: dict[bytes, bytes]
    memory: list[list[Cell | None]] = field(default_factory=list)
    slots: dict[int, Slot] = field(default_factory=dict)
    names: dict[int, bytes] = field(default_factory=dict)
    queue: deque[StepPlan] = field(default_factory=deque)
    results: deque[StepResult] = field(default_factory=deque)
    unanswered: deque[tuple[int, dict[int, tuple[bytes, int]], set[int]]] = field(
        default_factory=deque
    )
    content_of_name: dict[bytes, bytes] = field(default_factory=dict)
    planned: dict[int, tuple[tuple[bytes, int], list[int]]] = field(default_factory=dict)
    last_step_id: int = 0
    void_steps: set[int] = field(default_factory=set)
    is_failing: bool = False

    def __post_init__(self) -> None:
        size = self.info.model.block_size
        self.memory = [[None] * size for _ in range(self.info.num_blocks)]

    # The link: plans in, results out.

    def receive(self, plan: StepPlan) -> None:
        """Queue a plan, checking what must hold while earlier ones are unanswered."""
        require(plan.step_id == self.last_step_id + 1, "step ids have a gap")
        self.last_step_id = plan.step_id
        require(len(self.unanswered) < self.info.steps_in_flight, "more steps than credit")
        require(
            sum(plan.num_new_tokens) <= self.info.max_num_batched_tokens, "token budget exceeded"
        )
        require(len(set(plan.slots)) == len(plan.slots), "a slot is scheduled twice")
        require(bool(plan.slots or plan.freed_slots), "an empty plan")
        for slot in plan.freed_slots:
            require(slot in self.planned, "an unknown slot is freed")
            del self.planned[slot]
        self._plan_tables(plan)
        self.queue.append(plan)
        if self.is_failing:
            self.void_steps.add(plan.step_id)

    def _plan_tables(self, plan: StepPlan) -> None:
        size = self.info.model.block_size
        for new in plan.new_sequences:
            require(new.slot not in self.planned, "a slot is given out while in use")
            for _, slots, _ in self.unanswered:
                require(new.slot not in slots, "a slot is reused while a step names it")
            key = (new.request_id, new.choice)
            self.planned[new.slot] = (key, list(new.block_ids))
        fresh = iter(plan.new_block_ids)
        users: dict[int, tuple[bytes, int]] = {}
        blocks: set[int] = set()
        written: set[int] = set()
        for slot, start, count, num_new in zip(
            plan.slots, plan.starts, plan.num_new_tokens, plan.num_new_blocks, strict=True
        ):
            require(count > 0, "a slot is scheduled for nothing")
            key, table = self.planned[slot]
            table.extend(next(fresh) for _ in range(num_new))
            users[slot] = key
            blocks.update(table)
            mine = set(table[start // size : -(-(start + count) // size)])
            require(not mine & written, "two sequences write one block in a step")
            written |= mine
            for _, earlier, foreign in self.unanswered:
                if key not in earlier.values():
                    require(not mine & foreign, "a block is written while a step may read it")
        self.unanswered.append((plan.step_id, users, blocks))

    def run(self, *, failure: StepFailure | None = None) -> None:
        """Run the oldest plan."""
        plan = self.queue.popleft()
        self._apply_diff(plan)
        rows = list(zip(plan.slots, plan.starts, plan.num_new_tokens, plan.samples, strict=True))
        result = StepResult(plan.generation, plan.incarnation, plan.step_id)
        if failure is not None or any(self.slots[slot].is_tainted for slot in plan.slots):
            self._fail(rows)
            self.is_failing = True
            self.void_steps.update(queued.step_id for queued in self.queue)
            message = failure or StepFailure("ran on a failed step")
            self.results.append(
                StepResult(plan.generation, plan.incarnation, plan.step_id, failure=message)
            )
            return
        for slot, start, count, _ in rows:
            self._write(self.slots[slot], start, count)
        if plan.step_id in self.void_steps:
            self._spoil(rows)
        for slot, start, count, is_sampled in rows:
            state = self.slots[slot]
            if plan.step_id not in self.void_steps:
                self._read(state, start + count)
            if is_sampled:
                require(start + count == len(state.tokens), "samples before the end")
                token = sample(state.digests[-1], state.choice, self.info.model.vocab_size)
                state.append(token)
                result.slots.append(slot)
                result.counts.append(1)
                result.token_ids.append(token)
        self._name(plan)
        self.results.append(result)

    def deliver(self) -> StepResult:
        """Hand over the oldest result."""
        result = self.results.popleft()
        require(self.unanswered.popleft()[0] == result.step_id, "results out of order")
        if result.failure is not None:
            self.is_failing = False
        return result

    def reattach(self, info: WorkerInfo) -> None:
        """Drop slots and steps, keep blocks and names, as after a broken stream."""
        self.slots.clear()
        self.planned.clear()
        self.queue.clear()
        self.results.clear()
        self.unanswered.clear()
        self.void_steps.clear()
        self.last_step_id = 0
        self.is_failing = False
        held = tuple((BlockName(name), block) for block, name in self.names.items())
        self.info = replace(info, worker_id=self.info.worker_id, held=held)

    # The batch and the memory.

    def _apply_diff(self, plan: StepPlan) -> None:
        for slot in plan.freed_slots:
            del self.slots[slot]
        for new in plan.new_sequences:
            tokens = [*new.prompt_token_ids, *new.emitted_token_ids]
            digests = [root(self.salts[new.request_id])]
            for token in tokens:
                digests.append(extend(digests[-1], token))
            start = plan.starts[plan.slots.index(new.slot)]
            self.slots[new.slot] = Slot(
                new.request_id, new.choice, tokens, digests, list(new.block_ids), start
            )
        fresh = iter(plan.new_block_ids)
        for slot, num_new in zip(plan.slots, plan.num_new_blocks, strict=True):
            self.slots[slot].blocks.extend(next(fresh) for _ in range(num_new))

    def _write(self, state: Slot, start: int, count: int) -> None:
        size = self.info.model.block_size
        require(start == state.num_computed, f"starts at {start}, not {state.num_computed}")
        require(start + count <= len(state.tokens), "computes a token that is not known")
        for position in range(start, start + count):
            block = state.blocks[position // size]
            if position % size == 0:
                self.names.pop(block, None)
            require(block not in self.names, "writes into a named block")
            self.memory[block][position % size] = (position, state.digests[position + 1])
        state.num_computed = start + count

    def _read(self, state: Slot, end: int) -> None:
        size = self.info.model.block_size
        for position in range(end):
            cell = self.memory[state.blocks[position // size]][position % size]
            truth = (position, state.digests[position + 1])
            require(cell == truth, f"reads {cell} at position {position} instead of {truth}")

    def _name(self, plan: StepPlan) -> None:
        for block, name in zip(plan.named_blocks, plan.names, strict=True):
            cells = self.memory[block]
            if plan.step_id in self.void_steps or not self._is_in_use(block):
                self.names[block] = name  # unchecked: it must not be believed
                continue
            require(
                all(cell is not None and cell != GARBAGE for cell in cells), "names a torn block"
            )
            last = cells[-1]
            assert last is not None
            known = self.content_of_name.setdefault(name, last[1])
            require(known == last[1], "one name for two contents")
            self.names[block] = name

    def _is_in_use(self, block: int) -> bool:
        return any(block in state.blocks for state in self.slots.values())

    def _spoil(self, rows: Sequence[tuple[int, int, int, int]]) -> None:
        """What a step writes that read garbage is garbage too, though the worker cannot tell."""
        size = self.info.model.block_size
        for slot, start, count, _ in rows:
            state = self.slots[slot]
            try:
                self._read(state, start + count)
            except BrokenPlanError:
                for position in range(start, start + count):
                    self.memory[state.blocks[position // size]][position % size] = GARBAGE

    def _fail(self, rows: Sequence[tuple[int, int, int, int]]) -> None:
        size = self.info.model.block_size
        for slot, start, count, _ in rows:
            state = self.slots[slot]
            state.is_tainted = True
            for position in range(start, start + count):
                block = state.blocks[position // size]
                self.names.pop(block, None)
                self.memory[block][position % size] = GARBAGE
