"""The events of changes, read with types as strict as vLLM's."""

import msgspec
import pytest
from unit.scheduler.cell import Cell

from pagewire_scheduler.core.blocks.cache_changes import (
    CLEARED,
    BlockContent,
    CacheChange,
    ChangeKind,
)
from pagewire_scheduler.core.blocks.cache_groups import CacheGroups
from pagewire_scheduler.core.data.settings import CoreSettings
from pagewire_scheduler.kv_events.cache_mirror import CacheMirror
from pagewire_scheduler.kv_events.wire_events import (
    MAX_EVENT_BLOCKS,
    CacheInstance,
    EventWriter,
    IdentifiedBatch,
    WireBatch,
    hash_of,
)
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.arrays import pack_u32
from support.kv_events.vllm_format import decoder

SETTINGS = CoreSettings(generation=3, notes_cache_changes=True)
INSTANCE = CacheInstance(rank=2, topic=b"kv@a@tiny", block_size=4, windows=(None,))
PROMPT = list(range(1, 14))


def read(changes, *, shows_salted=False, instance=INSTANCE):
    """The events of `changes` after a journey through vLLM's decoder."""
    events = list(EventWriter(shows_salted=shows_salted).events(instance, changes))
    payload = msgspec.msgpack.encode(WireBatch(1.5, events, instance.rank))
    batch = decoder.decode(payload)
    assert (batch.ts, batch.data_parallel_rank) == (1.5, 2)
    return batch.events


def changes_of(cell):
    return cell.core.workers[cell.info.worker_id].pool.changes


def run(cell, number, prompt, **fields):
    cell.submit(number, prompt, **fields)
    cell.run()
    return changes_of(cell).take()


def name(number):
    return BlockName(number.to_bytes(16, "big"))


def stored(number, parent=None, **fields):
    tokens = pack_u32(range(4 * number, 4 * number + 4))
    content = BlockContent(name(number), 0, parent and name(parent), tokens, **fields)
    return CacheChange(ChangeKind.STORED, content)


def test_blocks_that_follow_one_another_are_one_event():
    (event,) = read(run(Cell(settings=SETTINGS), 1, PROMPT))
    assert type(event).__name__ == "BlockStored"
    assert event.token_ids[:13] == PROMPT
    assert len(event.token_ids) == 4 * len(event.block_hashes) == 16
    assert (event.parent_block_hash, event.block_size, event.medium) == (None, 4, "GPU")
    assert event.extra_keys == [None] * 4
    assert (event.lora_id, event.lora_name, event.group_idx) == (None, None, 0)
    assert event.kv_cache_spec_kind == "full_attention"


def test_a_prompt_that_goes_on_names_its_parent():
    cell = Cell(settings=SETTINGS)
    (first,) = read(run(cell, 1, PROMPT))
    (second,) = read(run(cell, 2, [*PROMPT[:8], *range(30, 37)]))
    assert second.parent_block_hash == first.block_hashes[1]
    assert second.token_ids[:7] == list(range(30, 37))


def test_the_hash_is_the_end_of_the_name():
    changes = run(Cell(settings=SETTINGS), 1, PROMPT)
    (event,) = read(changes)
    names = [change.content.name for change in changes]
    assert event.block_hashes == [int.from_bytes(one[8:], "big") for one in names]


def test_evicted_blocks_are_removed():
    cell = Cell(settings=SETTINGS, num_blocks=8)
    (first,) = read(run(cell, 1, PROMPT))
    events = read(run(cell, 2, list(range(20, 36))))
    removed = [
        one
        for event in events
        if len(event.block_hashes) and not hasattr(event, "token_ids")
        for one in event.block_hashes
    ]
    assert set(removed) <= set(first.block_hashes)
    assert removed


def test_a_reset_is_one_event():
    cell = Cell(settings=SETTINGS)
    run(cell, 1, PROMPT)
    cell.core.kv_caches.reset(None)
    (event,) = read(changes_of(cell).take())
    assert type(event).__name__ == "AllBlocksCleared"


def test_tokens_under_a_salt_are_said_only_where_the_operator_wants_it():
    changes = run(Cell(settings=SETTINGS), 1, PROMPT, salt=b"tenant")
    (event,) = read(changes)
    assert len(event.block_hashes) == 4
    assert (event.token_ids, event.block_size, event.extra_keys) == ([], 0, None)
    (event,) = read(changes, shows_salted=True)
    assert event.token_ids[:13] == PROMPT
    assert event.extra_keys == [(b"tenant".hex(),), None, None, None]


def test_an_adapter_is_part_of_every_block():
    changes = [stored(1, adapter=b"a" * 32), stored(2, 1, adapter=b"a" * 32)]
    (event,) = read(changes)
    assert event.lora_name == "61" * 32
    assert event.extra_keys == [("61" * 32,)] * 2


def test_cache_groups_have_the_same_hashes_and_their_own_index():
    cell = Cell(settings=SETTINGS, groups=CacheGroups((None, 8)))
    instance = CacheInstance(rank=2, topic=b"t", block_size=4, windows=(None, 8))
    events = read(run(cell, 1, PROMPT), instance=instance)
    by_group = {0: [], 1: []}
    for event in events:
        if hasattr(event, "token_ids"):
            by_group[event.group_idx] += event.block_hashes
            window = event.kv_cache_spec_sliding_window
            assert window == (8 if event.group_idx else None)
            assert event.kv_cache_spec_kind == ("sliding_window" if window else "full_attention")
    assert by_group[0] == by_group[1]
    assert len(by_group[0]) == 4


def test_events_are_bounded():
    changes = [stored(n, n - 1 or None) for n in range(1, 3 * MAX_EVENT_BLOCKS)]
    events = read(changes)
    assert max(len(event.block_hashes) for event in events) == MAX_EVENT_BLOCKS


def test_the_publisher_is_an_element_that_decoders_skip():
    payload = msgspec.msgpack.encode(IdentifiedBatch(1.0, [], None, b"p" * 16))
    assert msgspec.msgpack.decode(payload) == [1.0, [], None, b"p" * 16]
    assert decoder.decode(payload).events == []


def snapshot(mirror):
    events = [event for _, event in mirror.snapshot(EventWriter(shows_salted=False))]
    return [
        (
            one,
            event.parent_block_hash if at == 0 else event.block_hashes[at - 1],
            bool(event.token_ids),
        )
        for event in events
        for at, one in enumerate(event.block_hashes)
    ]


def test_a_snapshot_has_parents_first():
    mirror = CacheMirror()
    mirror.apply(INSTANCE, [stored(1), stored(2, 1), stored(3, 2)])
    # The parent went and came again: it is now the youngest.
    mirror.apply(INSTANCE, [stored(1)._replace(kind=ChangeKind.REMOVED), stored(1)])
    one, two, three = (hash_of(name(number)) for number in (1, 2, 3))
    assert snapshot(mirror) == [(one, None, True), (two, one, True), (three, two, True)]


def test_a_block_whose_parent_is_gone_is_said_by_its_hash_alone():
    mirror = CacheMirror()
    mirror.apply(INSTANCE, [stored(1), stored(2, 1), stored(3, 2), stored(9)])
    mirror.apply(INSTANCE, [stored(1)._replace(kind=ChangeKind.REMOVED)])
    found = {one: has_tokens for one, _, has_tokens in snapshot(mirror)}
    named = {hash_of(name(number)): number == 9 for number in (2, 3, 9)}
    assert found == named


@pytest.mark.parametrize("medium", ["GPU", "CPU"])
def test_a_cleared_instance_is_in_no_snapshot(medium):
    mirror = CacheMirror()
    instance = CacheInstance(rank=1, topic=b"t", medium=medium)
    mirror.apply(instance, [stored(1), stored(2, 1)])
    assert len(mirror) == 2
    mirror.apply(instance, [CLEARED])
    assert (len(mirror), snapshot(mirror)) == (0, [])
