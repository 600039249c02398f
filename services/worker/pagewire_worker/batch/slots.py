"""State of each sequence: tokens, block table and lengths, in arrays indexed by slot.

Token ids live on the device. A sampled token is appended to its sequence there and read by the
next step, so two steps in flight need no copy to the host. Plans are applied and taken back in
slot_changes.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pagewire_shared.kv.arrays import Int64Array
from pagewire_shared.steps.plan import GroupTable, NewSequence
from pagewire_worker.backend.adapters import NO_ADAPTER
from pagewire_worker.backend.device_copy import rows_to_device, to_device
from pagewire_worker.backend.resident_tables import ResidentTables
from pagewire_worker.batch.pooling_table import PoolingTable
from pagewire_worker.plan.plan_error import PlanError
from pagewire_worker.sampling.sampling_table import SamplingTable, SavedSampling
from pagewire_worker.sampling.token_rules import largest_token_id


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLimits:
    """Bounds that a plan may not pass; `windows` are those of the cache groups, None for none.

    Adapter slots are 0 to num_adapters - 1.
    """

    num_slots: int
    num_blocks: int
    block_size: int
    max_model_len: int
    vocab_size: int
    num_adapters: int = 0
    windows: tuple[int | None, ...] = (None,)

    @property
    def max_blocks(self) -> int:
        """Blocks of the longest sequence."""
        return -(-self.max_model_len // self.block_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSlots:
    """A copy of the state of some slots.

    Attributes:
        tokens: [slots, longest] on the device.
        columns, block_tables: As in SlotTable, [slots] each and [groups, slots, max_blocks].
        request_ids: None where a slot was empty.
        sampling: Their sampling parameters; pooling is left out, since no fork pools.
    """

    tokens: Tensor
    columns: tuple[npt.NDArray[np.generic], ...]
    block_tables: Int64Array
    request_ids: tuple[bytes | None, ...]
    sampling: SavedSampling


class SlotTable:
    """State of all slots, as arrays indexed by slot.

    Attributes:
        tokens: [num_slots, max_model_len + 1] int32 on the device: prompt, emitted, sampled.
        num_tokens: Known tokens per slot; the newest may be known on the device only.
        num_computed: Tokens whose KV is in the cache.
        prompt_lens: Length of the prompt; output positions count from here.
        adapters: Adapter slot of each sequence; NO_ADAPTER for none.
        is_beam: The slot grows by appended tokens, never by its own samples.
        is_behind: The newest step that was to sample for the slot left it out. Plans made on top
            of that step count on a token that does not exist.
        block_tables, num_blocks: Blocks of each sequence, in order of position, in every cache
            group. Blocks before the window of a group may belong to other sequences.
        group_tables: The same memory, [num_slots, max_blocks] per group.
        block_table: Those of the first group.
        resident: The block tables on the device; None if the device is the host.
    """

    def __init__(
        self,
        limits: SlotLimits,
        device: torch.device,
        *,
        has_resident_tables: bool | None = None,
    ) -> None:
        num_slots = limits.num_slots
        self.limits = limits
        self.sampling = SamplingTable(num_slots, device)
        self.pooling = PoolingTable()
        self.tokens = torch.zeros(
            (num_slots, limits.max_model_len + 1), dtype=torch.int32, device=device
        )
        self._host_tokens = self.tokens.numpy() if device.type == "cpu" else None
        self.num_tokens = np.zeros(num_slots, dtype=np.int64)
        self.num_computed = np.zeros(num_slots, dtype=np.int64)
        self.prompt_lens = np.zeros(num_slots, dtype=np.int64)
        self.num_blocks = np.zeros(num_slots, dtype=np.int64)
        self.adapters = np.full(num_slots, NO_ADAPTER, dtype=np.int64)
        self.is_beam = np.zeros(num_slots, dtype=bool)
        self.is_behind = np.zeros(num_slots, dtype=bool)
        num_groups = len(limits.windows)
        self.block_tables = np.zeros((num_groups, num_slots, limits.max_blocks), dtype=np.int64)
        self.group_tables: tuple[Int64Array, ...] = tuple(self.block_tables)
        self.block_table = self.group_tables[0]
        # On a CPU the tables are read directly: faster than any copy.
        is_apart = device.type != "cpu" if has_resident_tables is None else has_resident_tables
        self.resident = ResidentTables(self.block_tables, device) if is_apart else None
        self.request_ids: list[bytes | None] = [None] * num_slots

    def install(self, request: NewSequence, start: int) -> None:
        """Fill the empty slot of `request`, whose first step begins at position `start`.

        Raises:
            PlanError: The request breaks a rule; then the slot stays empty.
        """
        slot = self.checked_slot(request.slot)
        if self.request_ids[slot] is not None:
            raise PlanError(f"slot {slot} is taken", (slot,))
        parts = (request.prompt_token_ids, request.emitted_token_ids)
        ids = np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])
        prefix = request.num_prefix_tokens
        num_tokens = prefix + len(ids)
        if not 0 < num_tokens <= self.limits.max_model_len:
            raise PlanError(f"slot {slot}: a sequence of {num_tokens} tokens", (slot,))
        if int(ids.max(initial=0)) >= self.limits.vocab_size:
            raise PlanError(f"slot {slot}: token id {int(ids.max())} is no id", (slot,))
        self._check_sampling(request)
        self._check_prefix(request)
        adapter = NO_ADAPTER if request.adapter_slot is None else request.adapter_slot
        if adapter >= self.limits.num_adapters:
            raise PlanError(f"slot {slot}: adapter_slot {adapter} does not exist", (slot,))
        if prefix:
            self.tokens[slot, :prefix] = self.tokens[request.prefix_slot, :prefix]
        self.tokens[slot, prefix:num_tokens] = to_device(ids.astype(np.int32), self.tokens.device)
        self.num_tokens[slot] = num_tokens
        self.prompt_lens[slot] = prefix + len(request.prompt_token_ids)
        self.num_blocks[slot] = 0
        # Tokens before the first step are in the cache: a prefix hit, or a step in flight.
        self.num_computed[slot] = start
        self.adapters[slot] = adapter
        self.is_beam[slot] = request.is_beam
        self.request_ids[slot] = request.request_id
        try:
            self.extend(slot, self._tables_of(request, start))
            self.sampling.set(request)
            self.pooling.set(request)
        except PlanError:
            self.free(slot)
            raise

    def _tables_of(self, request: NewSequence, start: int) -> Int64Array:
        """Return the block tables of `request`, [groups, blocks], with 0 before the windows."""
        slot, windows = request.slot, self.limits.windows
        tables = (GroupTable(request.block_ids), *request.further_tables)
        if len(tables) != len(windows):
            text = f"{len(tables)} block_tables, and {len(windows)} cache groups"
            raise PlanError(f"slot {slot}: {text}", (slot,))
        blocks = np.zeros((len(tables), len(request.block_ids)), dtype=np.int64)
        for group, table in enumerate(tables):
            if table.num_before + len(table.block_ids) != len(request.block_ids):
                text = f"the block_tables of groups 0 and {group} end at different blocks"
                raise PlanError(f"slot {slot}: {text}", (slot,))
            if table.num_before > self._first_read(group, start):
                text = f"block_tables: group {group} lacks blocks of its window"
                raise PlanError(f"slot {slot}: {text}", (slot,))
            blocks[group, table.num_before :] = table.block_ids
        return blocks

    def _check_prefix(self, request: NewSequence) -> None:
        slot, source, length = request.slot, request.prefix_slot, request.num_prefix_tokens
        if length == 0:
            return
        if source >= self.limits.num_slots or self.request_ids[source] is None:
            raise PlanError(f"slot {slot}: prefix_slot {source} is empty", (slot,))
        if length > self.prompt_lens[source]:
            raise PlanError(
                f"slot {slot}: num_prefix_tokens is {length}, the prompt in slot {source} has "
                f"{self.prompt_lens[source]} tokens",
                (slot,),
            )

    def _check_sampling(self, request: NewSequence) -> None:
        slot, sampling = request.slot, request.sampling
        if sampling.seed is None and not sampling.is_greedy and request.pooling is None:
            raise PlanError(f"slot {slot}: sampling without a seed", (slot,))
        field, token_id = largest_token_id(sampling)
        if token_id >= self.limits.vocab_size:
            raise PlanError(f"slot {slot}: {field}: token id {token_id} is no id", (slot,))

    def extend(self, slot: int, blocks: Int64Array) -> None:
        """Append `blocks` [groups, n] to the block tables of `slot`.

        Raises:
            PlanError: They do not fit, or do not exist.
        """
        begin = int(self.num_blocks[slot])
        end = begin + blocks.shape[1]
        if end > self.limits.max_blocks:
            raise PlanError(f"slot {slot}: {end} blocks are more than a sequence has", (slot,))
        if int(blocks.max(initial=0)) >= self.limits.num_blocks and blocks.size:
            raise PlanError(f"slot {slot}: block {int(blocks.max())} does not exist", (slot,))
        self.block_tables[:, slot, begin:end] = blocks
        self.num_blocks[slot] = end
        if blocks.size:
            self.tables_changed([slot])

    def tables_changed(self, slots: Int64Array | list[int]) -> None:
        """Mark the block tables of `slots` as changed."""
        if self.resident is not None:
            self.resident.changed(slots)

    def free(self, slot: int) -> None:
        """Empty a slot."""
        self.request_ids[slot] = None
        self.is_beam[slot] = self.is_behind[slot] = False
        self.num_tokens[slot] = self.num_computed[slot] = self.num_blocks[slot] = 0
        self.adapters[slot] = NO_ADAPTER
        self.sampling.free(slot)
        self.pooling.free(slot)

    def clear(self) -> None:
        """Empty all slots."""
        for slot in self.occupied():
            self.free(slot)

    def occupied(self) -> list[int]:
        """Return the slots that hold a request."""
        return [slot for slot, request in enumerate(self.request_ids) if request is not None]

    def checked_slot(self, slot: int) -> int:
        """Return `slot`. Raises PlanError when there is no such slot."""
        if slot >= self.limits.num_slots:
            raise PlanError(f"slot {slot} does not exist")
        return slot

    def live_blocks(self, slot: int) -> Int64Array:
        """Return the blocks that the next token of `slot` attends to, or later ones, [n]."""
        num_computed, num_blocks = int(self.num_computed[slot]), self.num_blocks[slot]
        return np.concatenate(
            [
                table[slot, self._first_read(group, num_computed) : num_blocks]
                for group, table in enumerate(self.group_tables)
            ]
        )

    def _first_read(self, group: int, num_tokens: int) -> int:
        """Return the first block of a group that the token behind `num_tokens` attends to."""
        window = self.limits.windows[group]
        first = 0 if window is None else max(0, num_tokens + 1 - window)
        return first // self.limits.block_size

    def save(self, slots: Int64Array) -> SavedSlots:
        """Return a copy of the state of `slots` [n]."""
        longest = int(self.num_tokens[slots].max(initial=0))
        index = to_device(slots, self.tokens.device)
        return SavedSlots(
            tokens=self.tokens[:, :longest].index_select(0, index),
            columns=tuple(column[slots] for column in self._columns()),
            block_tables=self.block_tables[:, slots],
            request_ids=tuple(self.request_ids[slot] for slot in slots.tolist()),
            sampling=self.sampling.save(slots),
        )

    def restore(self, slots: Int64Array, saved: SavedSlots) -> None:
        """Give `slots` [n] the saved state of n slots, the same or others."""
        index = to_device(slots, self.tokens.device)
        self.tokens[:, : saved.tokens.shape[1]].index_copy_(0, index, saved.tokens)
        for column, values in zip(self._columns(), saved.columns, strict=True):
            column[slots] = values
        self.block_tables[:, slots] = saved.block_tables
        self.tables_changed(slots)
        for slot, request_id in zip(slots.tolist(), saved.request_ids, strict=True):
            self.request_ids[slot] = request_id
        self.sampling.restore(slots, saved.sampling)

    @property
    def host_tokens(self) -> npt.NDArray[np.int32] | None:
        """The tokens where the host reads them, [num_slots, max_model_len + 1]; None on devices."""
        return self._host_tokens

    def write_drafts(self, slot: int, position: int, token_ids: Int64Array) -> None:
        """Write `token_ids` [n] from `position` of `slot` on: they are not known tokens yet."""
        ids = to_device(token_ids.astype(np.int32), self.tokens.device)
        self.tokens[slot, position : position + len(token_ids)] = ids

    def read_tokens(self, slots: Int64Array, positions: Int64Array) -> Int64Array:
        """Return what is written at `positions` of `slots`, [n] each; waits for the device."""
        where = torch.from_numpy(slots), torch.from_numpy(positions)
        found: Int64Array = self.tokens[where].cpu().numpy().astype(np.int64)
        return found

    def write_tokens(
        self,
        slots: Int64Array,
        positions: Int64Array,
        token_ids: Tensor,
        where: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        """Write `token_ids` [n], on the device, at sequence `positions` of `slots`.

        `where` are both on the device, if they are there already.
        """
        device = self.tokens.device
        if self._host_tokens is not None:
            self._host_tokens[slots, positions] = token_ids.numpy()
            return
        if where is None:
            there = rows_to_device((slots, positions), device)
            where = (there[0], there[1])
        self.tokens.index_put_(where, token_ids.to(torch.int32))

    def write_sampled(
        self,
        slots: Int64Array,
        positions: Int64Array,
        token_ids: Tensor,
        where: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        """Write the sampled tokens of `slots` [n] at `positions` of their sequences, except beams.

        The sequences grow by one token when the step is committed.
        """
        if len(slots) == 0:
            return
        is_own = ~self.is_beam[slots]
        if not is_own.all():
            token_ids = token_ids[to_device(np.flatnonzero(is_own), token_ids.device)]
            slots, positions, where = slots[is_own], positions[is_own], None
        self.write_tokens(slots, positions, token_ids, where)

    def commit(
        self,
        slots: Int64Array,
        ends: Int64Array,
        sampling_slots: Int64Array,
        late: Int64Array | None = None,
        num_accepted: Int64Array | None = None,
    ) -> None:
        """Count the tokens computed up to `ends` of `slots`, and the sampled tokens.

        Tokens are sampled by `sampling_slots` [samples], except the slots of the rows `late` [n].
        `num_accepted` are the right drafts behind `ends`, per slot of `slots`.
        """
        if num_accepted is not None:
            ends = ends + num_accepted
            self.num_tokens[slots] += num_accepted
        self.num_computed[slots] = np.maximum(self.num_computed[slots], ends)
        self.is_behind[sampling_slots] = False
        if late is not None and len(late):
            late_slots = sampling_slots[late]
            self.is_behind[late_slots] = True
            sampling_slots = sampling_slots[~np.isin(sampling_slots, late_slots)]
        # A slot with drafts is here once per row, and counts once.
        self.num_tokens[sampling_slots] += ~self.is_beam[sampling_slots]

    def _columns(self) -> tuple[npt.NDArray[np.generic], ...]:
        return (
            self.num_tokens,
            self.num_computed,
            self.prompt_lens,
            self.num_blocks,
            self.adapters,
            self.is_beam,
        )
