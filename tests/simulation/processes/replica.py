"""A worker without a model: it holds what a KV cache would hold, applies plans in the order the
wire prescribes, and computes tokens from what its block tables really point to.

It never raises for a wrong plan. What contradicts the contract is noted with the result, because a
plan made on top of a failed one may be wrong without any fault: whoever takes the result knows.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from simulation.model.answers import (
    Answer,
    Killed,
    PlanProblem,
    Slot,
    in_full,
    swap_copied,
    tables_of,
)
from simulation.model.drafts import grants_of, num_right_of, offers
from simulation.model.naive import (
    Cell,
    cell_in,
    joined,
    next_cell,
    root_cell,
    salt_of_weights,
)
from simulation.model.outputs import Alternatives, add_logprobs, pool, sample_token, tell_prompts

from pagewire_scheduler.core.data.worker_info import WorkerInfo
from pagewire_scheduler.core.state.adapters import SlotLoad
from pagewire_shared.kv.load import LoadOrder
from pagewire_shared.steps.plan import NO_SLOT, NewSequence, StepPlan
from pagewire_shared.steps.result import StepFailure, StepResult
from pagewire_shared.weights.version import WeightsSource
from pagewire_worker.kv.block_names import BlockNames

UNWRITTEN = -1
GARBAGE = -2
MODEL_TIME_US = 4000
"""Per token; so a load of a few blocks has the time of some turns."""


@dataclass
class Replica:
    """Memory and slots of one worker process; outlives its streams.

    Attributes:
        salt_of: Salt of a request.
        names: Content names, as the real worker keeps them.
        grammars: Those that are compiled, by id.
        adapters: What is in the adapter slots.
        is_poison: Whether a request makes every step fail that it is in.
        offload: Takes the cells of blocks that got a name.
        is_deadly: Whether computing so many tokens of a request ends the process.
    """

    info: WorkerInfo
    salt_of: Callable[[bytes], bytes]
    is_poison: Callable[[bytes], bool]
    is_deadly: Callable[[bytes, int], bool]
    offload: Callable[[bytes, list[Cell]], None] = lambda name, cells: None
    memory: list[Cell] = field(default_factory=list)
    slots: dict[int, Slot] = field(default_factory=dict)
    names: BlockNames = field(default_factory=BlockNames)
    grammars: dict[bytes, str] = field(default_factory=dict)
    adapters: dict[int, bytes] = field(default_factory=dict)
    num_suspect_steps: int = 0

    def __post_init__(self) -> None:
        self.memory = [UNWRITTEN] * (self.info.num_blocks * self.info.model.block_size)

    def drop_slots(self) -> None:
        self.slots.clear()
        self.grammars.clear()
        self.adapters.clear()

    def drop_memory(self) -> None:
        """Have no content any more."""
        self.drop_slots()
        self.names = BlockNames()
        self.memory = [UNWRITTEN] * len(self.memory)

    def exchange(self, source: WeightsSource, fingerprint: bytes) -> None:
        """Have other weights, and no content any more."""
        self.drop_memory()
        model = replace(self.info.model, model_fingerprint=fingerprint)
        self.info = replace(self.info, model=model, source=source)

    def held(self, info: WorkerInfo) -> WorkerInfo:
        """The hello: `info` with the blocks that are VALID here."""
        held = tuple((name, block) for block, name in sorted(self.names.held().items()))
        return replace(info, held=held)  # type: ignore[arg-type]

    # One step.

    def run(self, plan: StepPlan, failure: StepFailure | None = None) -> Answer:
        """Run a plan, or fail it with `failure`.

        Raises:
            Killed: It computes what it does not survive.
        """
        for slot in plan.freed_slots:
            self.slots.pop(slot, None)
        for grammar_id in plan.released_grammars:
            del self.grammars[grammar_id]
        before = self._saved()
        problem = None
        try:
            self._apply_diff(plan)
            self._check_rows(plan)
        except PlanProblem as error:
            problem = str(error)
            failure = failure or StepFailure(problem)
        failure = failure or self._poisoned(plan)
        if failure is not None:
            if problem is None:
                self._spoil(plan)
            self.slots = before
            self.num_suspect_steps = self.info.steps_in_flight - 1
            return Answer(self._result(plan, failure), problem)
        self._survive(plan)
        result = self._forward(plan)
        size = self.info.model.block_size
        last = [self.memory[(block + 1) * size - 1] for block in plan.named_blocks]
        named = list(zip(plan.names, last, strict=True))
        self._apply_names(plan)
        return Answer(result, None, named)  # type: ignore[arg-type]

    def _saved(self) -> dict[int, Slot]:
        return {
            number: replace(
                slot,
                tokens=[*slot.tokens],
                tables=[[*one] for one in slot.tables],
                pooled=[*slot.pooled],
            )
            for number, slot in self.slots.items()
        }

    def _result(self, plan: StepPlan, failure: StepFailure | None = None) -> StepResult:
        time_us = MODEL_TIME_US * sum(plan.num_new_tokens)
        return StepResult(
            plan.generation,
            plan.incarnation,
            plan.step_id,
            model_time_us=time_us,
            failure=failure,
        )

    def _poisoned(self, plan: StepPlan) -> StepFailure | None:
        for slot in plan.slots:
            if self.is_poison(self.slots[slot].new.request_id):
                return StepFailure("poisoned")
        return None

    def _survive(self, plan: StepPlan) -> None:
        for slot, start, count in zip(plan.slots, plan.starts, plan.num_new_tokens, strict=True):
            if self.is_deadly(self.slots[slot].new.request_id, start + count):
                raise Killed

    def _apply_diff(self, plan: StepPlan) -> None:
        starts = dict(zip(plan.slots, plan.starts, strict=True))
        for new in (in_full(told, self.slots) for told in plan.new_sequences):
            _require(new.slot not in self.slots, f"slot {new.slot} is taken")
            _require(new.slot in starts, f"slot {new.slot} is new and not scheduled")
            self._check_grammar(new)
            is_mean = new.pooling is not None and new.pooling.pooling == "mean"
            _require(not (is_mean and starts[new.slot]), "a mean leaves out what is cached")
            self.slots[new.slot] = Slot(
                new,
                new.choice,
                [*new.prompt_token_ids, *new.emitted_token_ids],
                tables_of(new),
                starts[new.slot],
                root_cell(
                    self.salt_of(new.request_id)
                    + self._adapter_of(new)
                    + salt_of_weights(self.info.model.model_fingerprint)
                ),
            )
        self._fork(plan)
        for slot, token in zip(plan.appended_slots, plan.appended_token_ids, strict=True):
            _require(slot in self.slots, "a token is appended to an empty slot")
            _require(self.slots[slot].new.is_beam, "a token is appended to what is no beam")
            self.slots[slot].tokens.append(token)
        fresh = iter(plan.new_block_ids)
        for slot, num_new in zip(plan.slots, plan.num_new_blocks, strict=True):
            _require(slot in self.slots, f"slot {slot} is scheduled and empty")
            for table in self.slots[slot].tables:
                table.extend(next(fresh) for _ in range(num_new))
        _require(next(fresh, None) is None, "blocks for nobody")
        self._swap_copied(plan)

    def _check_grammar(self, new: NewSequence) -> None:
        """Whoever needs a grammar is told of one that is compiled here, and of the right one."""
        outputs = new.sampling.structured_outputs
        wanted = outputs.text if outputs is not None else None
        got = self.grammars.get(new.grammar_id) if new.grammar_id is not None else None
        _require(got == wanted, f"slot {new.slot} needs grammar {wanted}, is told of {got}")

    def _adapter_of(self, new: NewSequence) -> bytes:
        if new.adapter_slot is None:
            return b""
        adapter = self.adapters.get(new.adapter_slot, b"")
        _require(bool(adapter), f"slot {new.slot} uses adapter slot {new.adapter_slot}, not loaded")
        return adapter

    def begin_adapter(self, order: SlotLoad) -> None:
        """The slot is written from the first moment on: whatever runs there reads garbage."""
        self.adapters.pop(order.slot, None)
        for slot in self.slots.values():
            if slot.new.adapter_slot == order.slot:
                slot.root = GARBAGE

    def _fork(self, plan: StepPlan) -> None:
        copies = []
        rows = zip(plan.fork_slots, plan.fork_sources, plan.fork_choices, strict=True)
        for slot, source, choice in rows:
            _require(source in self.slots, "a fork of an empty slot")
            state = self.slots[source]
            copies.append(
                (
                    slot,
                    replace(
                        state,
                        choice=choice,
                        tokens=[*state.tokens],
                        tables=[[*one] for one in state.tables],
                    ),
                )
            )
        for slot, state in copies:
            self.slots[slot] = state

    def _swap_copied(self, plan: StepPlan) -> None:
        rows = zip(plan.copy_slots, plan.copy_sources, plan.copy_destinations, strict=True)
        for slot, source, destination in rows:
            _require(slot in self.slots, "a copy for an empty slot")
            is_held = swap_copied(self.slots[slot].tables, source, destination)
            _require(is_held, "a copy of a block that the slot does not hold")

    def _check_rows(self, plan: StepPlan) -> None:
        size, grants = self.info.model.block_size, grants_of(plan)
        for slot, start, count in zip(plan.slots, plan.starts, plan.num_new_tokens, strict=True):
            state, end = self.slots[slot], start + count
            _require(end <= len(state.tokens), f"slot {slot} computes a token not known")
            _require(count > 0 or slot in plan.fork_slots, f"slot {slot} has nothing to compute")
            is_next = start <= state.num_computed or not count
            _require(is_next, f"slot {slot} starts at {start} behind {state.num_computed}")
            least = min(map(len, state.tables))
            reach = end + grants.get(slot, 0)
            _require(reach <= least * size, f"slot {slot} has too few blocks")
            _require(reach <= self.info.model.max_model_len, f"slot {slot} leaves the context")
            is_plain = not (state.new.is_beam or state.new.pooling)
            _require(reach == end or is_plain, f"slot {slot} cannot have drafts")

    # The forward pass.

    def _forward(self, plan: StepPlan) -> StepResult:
        size = self.info.model.block_size
        self.names.forget(plan.copy_destinations)
        copied = [self.memory[b * size : (b + 1) * size] for b in plan.copy_sources]
        for destination, cells in zip(plan.copy_destinations, copied, strict=True):
            self.memory[destination * size : (destination + 1) * size] = cells
        rows = list(zip(plan.slots, plan.starts, plan.num_new_tokens, plan.samples, strict=True))
        for slot, start, count, _ in rows:
            self._write(self.slots[slot], start, count)
        result = replace(self._result(plan), prompt=tell_prompts(self.slots, rows, self.read))
        tops: list[Alternatives] = []
        vectors = [pool(self.slots[slot], *row, self.read) for slot, *row in rows]
        result = replace(result, vectors=b"".join(vectors))
        for slot, start, count, is_sampled in rows:
            state = self.slots[slot]
            state.num_computed = max(state.num_computed, start + count)
            if is_sampled and state.new.pooling is not None:
                result.slots.append(slot)
                result.counts.append(0)
            elif is_sampled:
                context = self.read(state.tables, start + count)
                sample_token(slot, state, start + count, context, result, tops)
                self._verify(plan, slot, start + count, result, tops)
        add_logprobs(result, tops)
        result.num_drafts.extend(offers(self.slots, plan, result, self.info.max_drafts))
        return result

    def _verify(
        self, plan: StepPlan, slot: int, end: int, result: StepResult, tops: list[Alternatives]
    ) -> None:
        """Sample behind the drafts of a slot that are right; write what is wrong behind them."""
        granted, state = grants_of(plan).get(slot, 0), self.slots[slot]
        num_right = num_right_of(plan, slot, granted)
        for position in range(end, end + num_right):
            self._write(state, position, 1)
            context = self.read(state.tables, position + 1)
            sample_token(slot, state, position + 1, context, result, tops)
            # One slot, with one token more.
            result.slots.pop()
            result.counts.pop()
            result.counts[-1] += 1
        self._garble(state, end + num_right, granted - num_right)
        state.num_computed = max(state.num_computed, end + num_right)

    def _garble(self, state: Slot, start: int, count: int) -> None:
        """Write what belongs to no sequence."""
        size = self.info.model.block_size
        for blocks, position in itertools.product(state.tables, range(start, start + count)):
            block = blocks[position // size]
            if position % size == 0:
                self.names.forget([block])
            self.memory[block * size + position % size] = GARBAGE

    def _write(self, state: Slot, start: int, count: int) -> None:
        size, memory = self.info.model.block_size, self.memory
        if state.root == GARBAGE:
            raise AssertionError("a step uses an adapter slot that was given to another one")
        previous = state.root
        if start and count:
            block = state.tables[0][(start - 1) // size]
            previous = memory[block * size + (start - 1) % size]
        for position in range(start, start + count):
            previous = next_cell(previous, state.tokens[position], position)
            for group, table in enumerate(state.tables):
                block = table[position // size]
                if position % size == 0:
                    self.names.forget([block])
                memory[block * size + position % size] = cell_in(group, previous)

    def read(self, tables: Sequence[Sequence[int]], end: int) -> int:
        """What a query behind `end` positions sees through the block tables."""
        windows = self.info.groups.windows
        return joined([self._seen(*one, end) for one in zip(tables, windows, strict=True)])

    def _seen(self, blocks: Sequence[int], window: int | None, end: int) -> list[Cell]:
        size, memory = self.info.model.block_size, self.memory
        first = 0 if window is None else max(0, end - window)
        cells: list[Cell] = []
        for index in range(first // size, -(-end // size)):
            block = blocks[index]
            cells += memory[block * size : (block + 1) * size]
        begin = first - first // size * size
        return cells[begin : begin + end - first]

    def _spoil(self, plan: StepPlan) -> None:
        """What a failed step leaves behind in the blocks it was to write."""
        # Copies are made, and names dropped, before the model runs and may fail.
        self.names.forget(plan.copy_destinations)
        grants = grants_of(plan)
        for slot, start, count in zip(plan.slots, plan.starts, plan.num_new_tokens, strict=True):
            self._garble(self.slots[slot], start, count + grants.get(slot, 0))

    # Loads.

    def begin_load(self, order: LoadOrder) -> None:
        """Blocks are written from the first moment on, whatever steps wait."""
        self.names.forget(order.blocks)
        size = self.info.model.block_size
        for block in order.blocks:
            self.memory[block * size : (block + 1) * size] = [GARBAGE] * size

    def finish_load(self, order: LoadOrder, came: Sequence[list[Cell]]) -> None:
        """The first blocks have come; the others keep what there is."""
        size = self.info.model.block_size
        for block, name, cells in zip(order.blocks, order.names, came, strict=False):
            self.memory[block * size : (block + 1) * size] = cells
            self.names.name(block, name)

    # Names.

    def _apply_names(self, plan: StepPlan) -> None:
        if self.num_suspect_steps:
            self.num_suspect_steps -= 1
            return
        size = self.info.model.block_size
        rows = zip(plan.named_blocks, plan.names, plan.named_slots, strict=True)
        for block, name, slot in rows:
            self.names.name(block, name)
            if slot != NO_SLOT:
                self.offload(name, self.memory[block * size : (block + 1) * size])


def _require(is_right: bool, message: str) -> None:
    if not is_right:
        raise PlanProblem(message)
