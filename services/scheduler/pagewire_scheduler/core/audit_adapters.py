"""The audit of adapter slots: their users, and the sequences that wait for adapters."""

from collections import Counter
from collections.abc import Iterator

from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.state.adapters import SlotState
from pagewire_scheduler.core.state.worker import WorkerState


def contradictions(worker: WorkerState) -> Iterator[tuple[str, str]]:
    """Yield (kind, detail) of every contradiction about the adapters of `worker`."""
    users = Counter(one.request.submission.adapter for one in worker.running)
    users.update(release.adapter for step in worker.outstanding for release in step.releases)
    held = [slot.adapter for slot in worker.adapters.slots if slot.adapter]
    if len(held) != len(set(held)):
        yield "wrong_adapter", "an adapter is in two slots"
    for slot in worker.adapters.slots:
        num_users = users[slot.adapter] if slot.adapter else 0
        if slot.num_users != num_users:
            yield "wrong_adapter", f"slot {slot.number} counts {slot.num_users}, has {num_users}"
        if num_users and slot.state not in (SlotState.READY, SlotState.CLOSING):
            yield "wrong_adapter", f"slot {slot.number} is {slot.state.value}, and in use"
        if (slot.state is SlotState.EMPTY) != (not slot.adapter):
            yield "wrong_adapter", f"slot {slot.number} is {slot.state.value}"
        if slot.adapter and worker.adapters.find(slot.adapter) is not slot:
            yield "wrong_adapter", f"the adapter of slot {slot.number} is not found there"
    for adapter in users.keys() - {b"", *held}:
        yield "wrong_adapter", f"adapter {adapter.hex()[:8]} is used, and in no slot"
    yield from _waiting(worker)


def _waiting(worker: WorkerState) -> Iterator[tuple[str, str]]:
    counted = Counter(
        one.request.submission.adapter for one in worker.waiting if one.request.submission.adapter
    )
    if counted != worker.waiting.num_of_adapter:
        yield "wrong_adapter", "sequences are counted under other adapters than theirs"
    for adapter in counted:
        if not worker.adapters.is_ready(adapter):
            yield "lost_sequence", f"some wait to start, and {adapter.hex()[:8]} is not loaded"
    aside = worker.aside.adapting
    wanted = {one for entry in aside.wanted.values() for one in entry.waiting}
    if wanted != set(aside):
        yield "lost_sequence", "some wait for adapters that are not wanted"
    for sequence in aside:
        is_ready = worker.adapters.is_ready(sequence.request.submission.adapter)
        if is_ready or sequence.state is not State.WAITING_FOR_ADAPTER:
            yield "lost_sequence", f"{sequence.key} waits for no adapter, and is there"
