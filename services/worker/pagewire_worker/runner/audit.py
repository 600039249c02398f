"""Audit: walks the slots and block tables of a worker and reports contradictions.

It counts what the tables hold and trusts no counter.
"""

from dataclasses import dataclass

import numpy as np

from pagewire_worker.batch.slots import SlotTable
from pagewire_worker.kv.block_names import BlockNames


@dataclass(frozen=True, slots=True)
class SlotAudit:
    """Slots, blocks in their tables, named blocks, and contradictions as (kind, sentence)."""

    slots: tuple[int, ...]
    num_blocks_in_tables: int
    num_named_blocks: int
    findings: tuple[tuple[str, str], ...]


def walk_slots(table: SlotTable, names: BlockNames) -> SlotAudit:
    """Walk every slot, occupied or not."""
    findings: list[tuple[str, str]] = []
    blocks: set[int] = set()
    occupied = table.occupied()
    for slot, request_id in enumerate(table.request_ids):
        num_blocks, num_tokens = int(table.num_blocks[slot]), int(table.num_tokens[slot])
        if request_id is None:
            if num_blocks or num_tokens:
                text = f"empty slot {slot} holds {num_tokens} tokens and {num_blocks} blocks"
                findings.append(("leaked_slot", text))
            continue
        # Blocks before a window were freed, perhaps to be allocated to this sequence again.
        own = table.live_blocks(slot)
        blocks.update(own.tolist())
        if len(np.unique(own)) != len(own):
            findings.append(("repeated_block", f"slot {slot} names a block twice"))
        if int(table.num_computed[slot]) > num_blocks * table.limits.block_size:
            findings.append(("missing_block", f"slot {slot} computed more than its blocks hold"))
    held = names.held()
    for block in held:
        if block >= table.limits.num_blocks:
            findings.append(("unknown_block", f"block {block} has a name and does not exist"))
    return SlotAudit(tuple(occupied), len(blocks), len(held), tuple(findings))
