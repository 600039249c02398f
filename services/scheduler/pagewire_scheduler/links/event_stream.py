"""Events of the core that wait to be written to one frontend. They are merged while they wait, and
converted to messages of a bounded size when they are written.

A pause of a frontend costs memory for the tokens emitted meanwhile. It costs neither one message
per step nor the stream.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as pb
from pagewire_scheduler.convert.frontend import (
    finished_messages,
    prompt_batches,
    rejected,
    token_batches,
    vector_batches,
)
from pagewire_scheduler.convert.timeline import timeline_batches
from pagewire_scheduler.convert.weights import begun_batch
from pagewire_scheduler.core.data.events import (
    BegunEvent,
    Event,
    FinishedEvent,
    PromptLogprobsEvent,
    RejectedEvent,
    TimelineEvent,
    TokensEvent,
    VectorEvent,
)

MERGE_EVERY: Final = 4096
"""Events that wait before the first merge, and new ones before each further one."""

MAX_BYTES: Final = 256 * 1024 * 1024
"""Limit of waiting events, estimated after a merge. Beyond it the frontend must attach again."""

BEGUN_AT_ONCE: Final = 4096
"""Requests whose begins go in one message."""

_EVENT_BYTES: Final = 256
_TOKEN_BYTES: Final = 40
_ALTERNATIVE_BYTES: Final = 16


class WaitingEvents:
    """Events in the order in which they came."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._num_merged = 0
        self._num_bytes = 0

    def __len__(self) -> int:
        return len(self._events)

    @property
    def is_too_much(self) -> bool:
        """Whether waiting events take more than MAX_BYTES."""
        return self._num_bytes > MAX_BYTES

    def add(self, events: Sequence[Event]) -> None:
        """Add events."""
        self._events += events
        if len(self._events) - self._num_merged >= MERGE_EVERY:
            self._events = merged(self._events)
            self._num_merged = len(self._events)
            self._num_bytes = sum(map(_num_bytes, self._events))

    def take(self) -> Iterator[pb.AttachFrontendResponse]:
        """Take out all events and yield their messages, made one by one.

        The order is refusals, begins, log-probabilities of prompts,
        timelines, tokens, vectors, ends.
        """
        events, self._events = self._events, []
        self._num_merged = self._num_bytes = 0
        by_kind: dict[type[Event], list[Any]] = {}
        for event in events:
            by_kind.setdefault(type(event), []).append(event)
        del events
        for event in by_kind.pop(RejectedEvent, ()):
            yield pb.AttachFrontendResponse(rejected=rejected(event))
        begun = by_kind.pop(BegunEvent, [])
        for first in range(0, len(begun), BEGUN_AT_ONCE):
            batch = begun_batch(begun[first : first + BEGUN_AT_ONCE])
            yield pb.AttachFrontendResponse(begun=batch)
        for prompts in prompt_batches(by_kind.pop(PromptLogprobsEvent, ())):
            yield pb.AttachFrontendResponse(prompt_logprobs=prompts)
        for timelines in timeline_batches(by_kind.pop(TimelineEvent, ())):
            yield pb.AttachFrontendResponse(timelines=timelines)
        for tokens in token_batches(merged(by_kind.pop(TokensEvent, []))):
            yield pb.AttachFrontendResponse(tokens=tokens)
        for vectors in vector_batches(by_kind.pop(VectorEvent, ())):
            yield pb.AttachFrontendResponse(vectors=vectors)
        for ends in finished_messages(by_kind.pop(FinishedEvent, ())):
            yield pb.AttachFrontendResponse(finished=ends)


def merged(events: list[Any]) -> list[Any]:
    """Return the events with consecutive tokens of a choice joined, at the place of the first.

    Tokens with a gap before them stay an event of their own; the frontend checks positions.
    """
    parts: dict[tuple[int, int, int], list[list[TokensEvent]]] = {}
    order: list[Any] = []
    for event in events:
        if type(event) is not TokensEvent:
            order.append(event)
            continue
        runs = parts.setdefault((event.handle, event.choice, event.epoch), [])
        if runs and _follows(runs[-1][-1], event):
            runs[-1].append(event)
        else:
            runs.append([event])
            order.append(runs[-1])
    if len(order) == len(events):
        return events
    return [_joined(one) if type(one) is list else one for one in order]


def _follows(before: TokensEvent, event: TokensEvent) -> bool:
    is_next = event.first_position == before.first_position + len(before.token_ids)
    return is_next and event.logprobs is before.logprobs


def _joined(run: list[TokensEvent]) -> TokensEvent:
    if len(run) == 1:
        return run[0]
    token_ids = tuple(token for event in run for token in event.token_ids)
    return run[0]._replace(token_ids=token_ids)


def _num_bytes(event: Event) -> int:
    if isinstance(event, TokensEvent):
        num_tokens, known = len(event.token_ids), event.logprobs
        if known is None:
            return _EVENT_BYTES + _TOKEN_BYTES * num_tokens
        tops = known.tops(event.first_position, event.first_position + num_tokens)
        num_alternatives: int = tops.stop - tops.start
        return _EVENT_BYTES + 2 * _TOKEN_BYTES * num_tokens + _ALTERNATIVE_BYTES * num_alternatives
    if isinstance(event, PromptLogprobsEvent):
        piece = event.piece
        return _EVENT_BYTES + _ALTERNATIVE_BYTES * len(piece.logprobs) * (1 + piece.num_top)
    return _EVENT_BYTES + (len(event.vector) if isinstance(event, VectorEvent) else 0)
