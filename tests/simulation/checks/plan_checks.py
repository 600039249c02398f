"""What must hold of every plan at the moment it is sent, kept apart from the core's own books:
budgets, slots, credit, and that no block is given out while a step under way may touch it."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from simulation.coverage import Coverage, Violation
from simulation.model.answers import swap_copied, tables_of
from simulation.model.drafts import grants_of

from pagewire_scheduler.core.data.worker_info import WorkerInfo
from pagewire_shared.kv.load import LoadOrder
from pagewire_shared.steps.plan import NO_SLOT, StepPlan

Key = tuple[bytes, int]


@dataclass(slots=True)
class Unanswered:
    """A step under way: whose slots it names, which blocks it may touch, and copies from."""

    step_id: int
    slots: dict[int, Key]
    touched: set[int]
    sources: set[int]


@dataclass
class PlanChecks:
    """The plans of one attach."""

    peer: Any
    coverage: Coverage
    tables: dict[int, list[list[int]]] = field(default_factory=dict)
    keys: dict[int, Key] = field(default_factory=dict)
    unanswered: deque[Unanswered] = field(default_factory=deque)
    last_step_id: int = 0
    loading: dict[int, set[int]] = field(default_factory=dict)

    @property
    def info(self) -> WorkerInfo:
        return self.peer.info  # type: ignore[no-any-return]

    def sent(self, plan: StepPlan) -> None:
        """Check a plan against all earlier ones."""
        self._check_bounds(plan)
        for slot in plan.freed_slots:
            # A beam that left before any plan told of it leaves a slot that was never filled.
            self.tables.pop(slot, None)
            self.keys.pop(slot, None)
        fresh = self._take_changes(plan)
        self._check_fresh(fresh)
        touched: set[int] = set()
        written: set[int] = set()
        size = self.info.model.block_size
        grants = grants_of(plan)
        for slot, start, count in zip(plan.slots, plan.starts, plan.num_new_tokens, strict=True):
            count += grants.get(slot, 0)
            for table, window in zip(self.tables[slot], self.info.groups.windows, strict=True):
                first = 0 if window is None else max(0, start + 1 - window) // size
                touched.update(table[first:])
                mine = set(table[start // size : -(-(start + count) // size)]) if count else set()
                self._need(not mine & written, "one_writer", "two rows write one block")
                written |= mine
        # Not the sources of copies: they are read before their own step runs, and a worker runs
        # steps in order, so whoever is given such a block writes it later.
        slots = {slot: self.keys[slot] for slot in plan.slots}
        is_once = len(set(slots.values())) == len(slots)
        self._need(is_once, "step_within_bounds", "a sequence is scheduled twice")
        for blocks in self.loading.values():
            used = blocks & (touched | set(plan.copy_sources))
            self._need(not used, "loads_are_alone", f"a step uses blocks {used} of a load")
        self._check_names(plan)
        sources = set(plan.copy_sources)
        self.unanswered.append(Unanswered(plan.step_id, slots, touched, sources))

    def answered(self, step_id: int) -> None:
        """The scheduler has taken the answer to its oldest step."""
        assert self.unanswered[0].step_id == step_id
        self.unanswered.popleft()

    def ordered(self, order: LoadOrder) -> None:
        """A load is about to be sent: no step and no other load may touch its blocks."""
        name, blocks = "loads_are_alone", set(order.blocks)
        self._need(order.load_id not in self.loading, name, "a load id comes again")
        for step in self.unanswered:
            taken = blocks & (step.touched | step.sources)
            self._need(not taken, name, f"blocks {taken} are touched by step {step.step_id}")
        for others in self.loading.values():
            self._need(not blocks & others, name, "two loads go to one block")
        self.loading[order.load_id] = blocks

    def loaded(self, load_id: int) -> None:
        """The scheduler is about to take the answer to a load."""
        self.loading.pop(load_id, None)

    def _check_names(self, plan: StepPlan) -> None:
        """Every name says whose it is, and where its block goes if there are several stores."""
        num_stripes = len(plan.named_blocks) if self.info.places_copies else 0
        is_placed = len(plan.named_stripes) == num_stripes
        self._need(is_placed, "names_say_content", "blocks have no stripes, or needless ones")
        rows = zip(plan.named_blocks, plan.named_slots, strict=True)
        for block, slot in rows:
            is_there = slot == NO_SLOT or any(block in one for one in self.tables[slot])
            self._need(is_there, "names_say_content", f"block {block} is not of slot {slot}")

    def _check_bounds(self, plan: StepPlan) -> None:
        name, info = "step_within_bounds", self.info
        self._need(plan.step_id == self.last_step_id + 1, name, "step ids have a gap")
        self.last_step_id = plan.step_id
        self._need(len(self.unanswered) < info.steps_in_flight, name, "more steps than credit")
        num_tokens = sum(plan.num_new_tokens) + sum(plan.num_drafts)
        is_granted = max(plan.num_drafts, default=0) <= info.max_drafts
        self._need(is_granted, "drafts_are_known", "more than the worker verifies")
        if plan.num_drafts:
            # A draft stands behind the newest token, which is known when nothing is under way.
            self._need(not self.unanswered, "drafts_are_known", "a step is under way")
            self.coverage.invariants["drafts_are_known"] += 1
        shared = info.shared_step_tokens or info.max_num_batched_tokens
        # Forks of a sequence compute nothing in the step that ends its prompt.
        is_shared = sum(map(bool, plan.num_new_tokens)) > 1
        most = shared if is_shared else info.max_num_batched_tokens
        self._need(num_tokens <= most, name, f"{num_tokens} tokens")
        self._need(len(set(plan.slots)) == len(plan.slots), name, "a slot is scheduled twice")
        self._need(len(plan.slots) <= info.max_num_seqs, name, "too many sequences")
        self._need(max(plan.slots, default=0) < info.max_num_seqs, name, "no such slot")
        has_news = plan.slots or plan.freed_slots or plan.named_blocks
        self._need(bool(has_news), name, "an empty plan")
        if len(plan.slots) > 1:
            self.coverage.invariants[name] += 1

    def _take_changes(self, plan: StepPlan) -> list[int]:
        """Follow the tables; return the blocks given out."""
        size, name = self.info.model.block_size, "step_within_bounds"
        starts = dict(zip(plan.slots, plan.starts, strict=True))
        fresh = list(plan.copy_destinations)
        for new in plan.new_sequences:
            tables = tables_of(new)
            self._enter(new.slot, (new.request_id, new.choice), tables)
            fresh += [block for table in tables for block in table[starts[new.slot] // size :]]
        forks = [
            (slot, (self.keys[source][0], choice), [list(one) for one in self.tables[source]])
            for slot, source, choice in zip(
                plan.fork_slots, plan.fork_sources, plan.fork_choices, strict=True
            )
        ]
        for slot, key, table in forks:
            if slot in self.tables:  # a beam takes the place of another
                del self.tables[slot], self.keys[slot]
            self._enter(slot, key, table)
        grown = iter(plan.new_block_ids)
        for slot, num_new in zip(plan.slots, plan.num_new_blocks, strict=True):
            self._need(slot in self.tables, name, f"slot {slot} is scheduled and empty")
            for table in self.tables[slot]:
                blocks = [next(grown) for _ in range(num_new)]
                table.extend(blocks)
                # A fork shares what its source grows by in this step, and is told of it again.
                fresh += blocks if slot not in plan.fork_slots else []
        rows = zip(plan.copy_slots, plan.copy_sources, plan.copy_destinations, strict=True)
        for slot, source, destination in rows:
            is_held = swap_copied(self.tables[slot], source, destination)
            self._need(is_held, name, "a copy of a block that is not held")
        return fresh

    def _enter(self, slot: int, key: Key, tables: list[list[int]]) -> None:
        self._need(slot not in self.tables, "no_reissue_under_a_step", f"slot {slot} is in use")
        for step in self.unanswered:
            is_free = slot not in step.slots
            self._need(is_free, "no_reissue_under_a_step", f"slot {slot} is named by a step")
        self.keys[slot], self.tables[slot] = key, tables

    def _check_fresh(self, fresh: list[int]) -> None:
        name = "no_reissue_under_a_step"
        self._need(len(set(fresh)) == len(fresh), name, "a block is given out twice in a step")
        for step in self.unanswered:
            taken = step.touched.intersection(fresh)
            self._need(not taken, name, f"blocks {taken} are touched by step {step.step_id}")
        if fresh and self.unanswered:
            self.coverage.invariants[name] += 1

    def _need(self, is_right: bool, name: str, detail: str) -> None:
        if not is_right:
            raise Violation(name, detail)
