"""What the worker keeps per sequence: tokens, block table, lengths. Applies diffs; decides nothing.

Token ids live on the device: a sampled token is written behind its sequence there and read by the
next step, so that two steps in flight need no trip to the host.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pagewire_worker.sampling_table import SamplingTable
from pagewire_worker.step import NewRequest, StepPlan

Int64Array = npt.NDArray[np.int64]


class PlanError(ValueError):
    """A plan contradicts what the worker holds; names the slots at fault when they are known."""

    def __init__(self, message: str, culprit_slots: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.culprit_slots = culprit_slots


@dataclass(frozen=True, slots=True)
class SlotLimits:
    """Bounds that a plan may not pass."""

    num_slots: int
    num_blocks: int
    block_size: int
    max_model_len: int
    vocab_size: int

    @property
    def max_blocks(self) -> int:
        """Blocks of the longest sequence."""
        return -(-self.max_model_len // self.block_size)


@dataclass(frozen=True, slots=True)
class Undo:
    """How to take back what a plan did to the slots."""

    new_slots: tuple[int, ...]
    grown_slots: Int64Array
    previous_num_blocks: Int64Array


class SlotTable:
    """State of all slots as arrays indexed by slot.

    Attributes:
        tokens: [num_slots, max_model_len + 1] int32 on the device: prompt, emitted, sampled.
        num_tokens: Tokens known per slot, the newest perhaps only on the device.
        num_computed: Tokens whose KV is in the cache.
        prompt_lens: Length of the prompt; output positions count from here.
        block_table, num_blocks: Blocks of each sequence, in order of position.
    """

    def __init__(self, limits: SlotLimits, device: torch.device) -> None:
        num_slots = limits.num_slots
        self.limits = limits
        self.sampling = SamplingTable(num_slots, device)
        self.tokens = torch.zeros(
            (num_slots, limits.max_model_len + 1), dtype=torch.int32, device=device
        )
        self.num_tokens = np.zeros(num_slots, dtype=np.int64)
        self.num_computed = np.zeros(num_slots, dtype=np.int64)
        self.prompt_lens = np.zeros(num_slots, dtype=np.int64)
        self.num_blocks = np.zeros(num_slots, dtype=np.int64)
        self.block_table = np.zeros((num_slots, limits.max_blocks), dtype=np.int64)
        self.request_ids: list[bytes | None] = [None] * num_slots

    def apply(self, plan: StepPlan) -> Undo:
        """Apply freed slots, new requests and new blocks, in this order.

        Raises:
            PlanError: Something does not fit; then only the freed slots have changed.
        """
        for slot in np.asarray(plan.freed_slots, dtype=np.int64).tolist():
            # A slot whose first step failed was never filled: freeing it is no contradiction.
            self.free(self._checked_slot(slot))
        new_slots: list[int] = []
        slots = np.asarray(plan.slots, dtype=np.int64)
        undo = Undo((), slots[:0], slots[:0])
        try:
            for request in plan.new_requests:
                self._install(request)
                new_slots.append(request.slot)
            undo = Undo(tuple(new_slots), slots, self._previous(slots))
            self._append_blocks(plan, slots)
        except PlanError:
            self.undo(Undo(tuple(new_slots), undo.grown_slots, undo.previous_num_blocks))
            raise
        return undo

    def undo(self, undo: Undo) -> None:
        """Take back what `apply` did, freed slots excepted."""
        self.num_blocks[undo.grown_slots] = undo.previous_num_blocks
        for slot in undo.new_slots:
            self.free(slot)

    def free(self, slot: int) -> None:
        """Empty a slot."""
        self.request_ids[slot] = None
        self.num_tokens[slot] = self.num_computed[slot] = self.num_blocks[slot] = 0

    def clear(self) -> None:
        """Empty all slots."""
        for slot in self.occupied():
            self.free(slot)

    def occupied(self) -> list[int]:
        """Return the slots that hold a request."""
        return [slot for slot, request in enumerate(self.request_ids) if request is not None]

    def _previous(self, slots: Int64Array) -> Int64Array:
        if len(slots) and int(slots.max()) >= self.limits.num_slots:
            raise PlanError(f"slot {int(slots.max())} does not exist")
        return self.num_blocks[slots]

    def _checked_slot(self, slot: int) -> int:
        if slot >= self.limits.num_slots:
            raise PlanError(f"slot {slot} does not exist")
        return slot

    def _install(self, request: NewRequest) -> None:
        slot = self._checked_slot(request.slot)
        if self.request_ids[slot] is not None:
            raise PlanError(f"slot {slot} is taken", (slot,))
        parts = (request.prompt_token_ids, request.emitted_token_ids)
        ids = np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])
        if not 0 < len(ids) <= self.limits.max_model_len:
            raise PlanError(f"slot {slot}: a sequence of {len(ids)} tokens", (slot,))
        if int(ids.max()) >= self.limits.vocab_size:
            raise PlanError(f"slot {slot}: token id {int(ids.max())} is no id", (slot,))
        if request.sampling.seed is None and not request.sampling.is_greedy:
            raise PlanError(f"slot {slot}: sampling without a seed", (slot,))
        self.tokens[slot, : len(ids)] = torch.from_numpy(ids.astype(np.int32))
        self.num_tokens[slot] = len(ids)
        self.prompt_lens[slot] = len(request.prompt_token_ids)
        self.num_blocks[slot] = 0
        # What the first step starts behind is in the cache already.
        self.num_computed[slot] = len(ids)
        self.request_ids[slot] = request.request_id
        try:
            self._extend(slot, np.asarray(request.block_tables[0], dtype=np.int64))
            self.sampling.set(request)
        except PlanError:
            self.free(slot)
            raise

    def _append_blocks(self, plan: StepPlan, slots: Int64Array) -> None:
        counts = np.asarray(plan.num_new_blocks, dtype=np.int64)
        blocks = np.asarray(plan.new_block_ids, dtype=np.int64)
        if int(counts.sum()) != len(blocks):
            raise PlanError(f"{len(blocks)} new blocks for counts that sum to {counts.sum()}")
        ends = np.cumsum(counts)
        for index in np.flatnonzero(counts).tolist():
            end = int(ends[index])
            self._extend(int(slots[index]), blocks[end - int(counts[index]) : end])

    def _extend(self, slot: int, blocks: Int64Array) -> None:
        begin = int(self.num_blocks[slot])
        end = begin + len(blocks)
        if end > self.limits.max_blocks:
            raise PlanError(f"slot {slot}: {end} blocks are more than a sequence has", (slot,))
        if len(blocks) and int(blocks.max()) >= self.limits.num_blocks:
            raise PlanError(f"slot {slot}: block {int(blocks.max())} does not exist", (slot,))
        self.block_table[slot, begin:end] = blocks
        self.num_blocks[slot] = end

    def write_sampled(self, slots: Int64Array, positions: Int64Array, token_ids: Tensor) -> None:
        """Put sampled `token_ids` [n], on the device, at sequence `positions` of `slots`."""
        device = self.tokens.device
        where = (
            torch.from_numpy(slots).to(device, non_blocking=True),
            torch.from_numpy(positions).to(device, non_blocking=True),
        )
        self.tokens.index_put_(where, token_ids.to(torch.int32))
