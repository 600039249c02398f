"""Converts states, tags, modes and the sleep of a worker to messages and back."""

from collections.abc import Iterable

from pagewire_protos.common.v1 import sleep_pb2
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.rpc.errors import from_detail, to_detail
from pagewire_shared.sleep.state import ALL_TAGS, MemoryState, MemoryTag, SleepMode, WorkerSleep

_STATES = {
    MemoryState.AWAKE: sleep_pb2.MEMORY_STATE_AWAKE,
    MemoryState.DRAINING: sleep_pb2.MEMORY_STATE_DRAINING,
    MemoryState.ASLEEP: sleep_pb2.MEMORY_STATE_ASLEEP,
    MemoryState.WAKING: sleep_pb2.MEMORY_STATE_WAKING,
}
_STATE_OF: dict[int, MemoryState] = {number: state for state, number in _STATES.items()}

_TAGS = {
    MemoryTag.WEIGHTS: sleep_pb2.MEMORY_TAG_WEIGHTS,
    MemoryTag.KV_CACHE: sleep_pb2.MEMORY_TAG_KV_CACHE,
}
_TAG_OF: dict[int, MemoryTag] = {number: tag for tag, number in _TAGS.items()}

_MODES = {
    SleepMode.KEEP: sleep_pb2.SLEEP_MODE_KEEP,
    SleepMode.WAIT: sleep_pb2.SLEEP_MODE_WAIT,
}
_MODE_OF: dict[int, SleepMode] = {
    sleep_pb2.SLEEP_MODE_UNSPECIFIED: SleepMode.KEEP,
    **{number: mode for mode, number in _MODES.items()},
}


def mode_to_message(mode: SleepMode) -> "sleep_pb2.SleepMode":
    """Return the wire form."""
    return _MODES[mode]


def mode_from_message(number: int) -> SleepMode:
    """Return a mode. Raises InvalidRequestError for an unknown one."""
    if number not in _MODE_OF:
        raise InvalidRequestError(f"mode {number} is not known", field="mode")
    return _MODE_OF[number]


def tags_to_message(tags: Iterable[MemoryTag]) -> "list[sleep_pb2.MemoryTag]":
    """Return the wire form, in a fixed order."""
    wanted = set(tags)
    return [number for tag, number in _TAGS.items() if tag in wanted]


def tags_from_message(numbers: Iterable[int]) -> frozenset[MemoryTag]:
    """Return the parts, all for none. Raises InvalidRequestError for an unknown one."""
    listed = list(numbers)
    unknown = [number for number in listed if number not in _TAG_OF]
    if unknown:
        raise InvalidRequestError(f"tags {unknown} are not known", field="tags")
    return frozenset(_TAG_OF[number] for number in listed) or ALL_TAGS


def sleep_to_message(sleep: WorkerSleep) -> sleep_pb2.WorkerSleep:
    """Return the wire form."""
    return sleep_pb2.WorkerSleep(
        state=_STATES[sleep.state],
        level=sleep.level,
        awake=tags_to_message(sleep.awake),
        num_bytes=sleep.num_bytes,
        wakes_on_request=sleep.wakes_on_request,
        error=None if sleep.error is None else to_detail(sleep.error),
    )


def sleep_from_message(message: sleep_pb2.WorkerSleep) -> WorkerSleep:
    """Return the sleep of a worker; a state that is not known counts as awake."""
    return WorkerSleep(
        state=_STATE_OF.get(message.state, MemoryState.AWAKE),
        level=message.level,
        awake=frozenset(_TAG_OF[tag] for tag in message.awake if tag in _TAG_OF),
        num_bytes=message.num_bytes,
        wakes_on_request=message.wakes_on_request,
        error=from_detail(message.error) if message.HasField("error") else None,
    )
