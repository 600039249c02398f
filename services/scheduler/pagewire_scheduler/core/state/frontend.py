"""A frontend as the core sees it: its requests, its lease, and the events made for it. Its stream
belongs to `links.frontend_link`."""

import math
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from pagewire_scheduler.core.data.events import (
    BegunEvent,
    Event,
    FinishedEvent,
    PromptLogprobsEvent,
    TimelineEvent,
    TokensEvent,
    VectorEvent,
)
from pagewire_scheduler.core.data.tally import Tally, new_tally
from pagewire_scheduler.core.data.token_logprobs import PromptPiece
from pagewire_scheduler.core.state.request import Request, Sequence
from pagewire_shared.identity.ids import RequestId

ENDED = 0xFFFFFFFF
"""Next position of a choice whose end the frontend has already."""


@dataclass(frozen=True, slots=True)
class Held:
    """A request that a re-attaching frontend still wants."""

    request_id: RequestId
    epoch: int
    handle: int
    next_positions: tuple[int, ...]


@dataclass(slots=True)
class FrontendState:
    """Requests of one frontend, with its sequences counted by place and model.

    `lease_end` is infinite while the stream is open.
    """

    frontend_id: bytes
    lease_end: float = math.inf
    requests: dict[RequestId, Request] = field(default_factory=dict)
    handles: dict[int, Request] = field(default_factory=dict)
    tallies: dict[str, Tally] = field(default_factory=dict)

    @property
    def is_attached(self) -> bool:
        """Whether the stream is open."""
        return self.lease_end == math.inf

    def enter(self, request: Request) -> None:
        """Hold a request that is to run."""
        self.requests[request.request_id] = request
        request.tally = self.tallies.setdefault(request.submission.model, new_tally())

    def adopt(self, request: Request, owner: "FrontendState") -> None:
        """Hold a request that another frontend has left, with its sequences as they are."""
        owner.forget(request)
        places = [one.placement.place for one in request.sequences]
        counted = [place for place in places if place is not None]
        if request.tally is not None:
            for place in counted:
                request.tally[place] -= 1
        request.frontend_id = self.frontend_id
        self.enter(request)
        assert request.tally is not None, "set by enter"
        for place in counted:
            request.tally[place] += 1

    def listen(self, request: Request, handle: int) -> None:
        """Name `request` by `handle` on the stream from now on."""
        if request.handle is not None:
            self.handles.pop(request.handle, None)
        request.handle = handle
        self.handles[handle] = request

    def leave(self, now: float, lease_seconds: float) -> None:
        """Note the end of the stream: requests run on for a lease, without a reader."""
        self.lease_end = now + lease_seconds
        self.handles.clear()
        for request in self.requests.values():
            request.handle = None

    def forget(self, request: Request) -> None:
        """Forget `request`."""
        del self.requests[request.request_id]
        if request.handle is not None:
            self.handles.pop(request.handle, None)


def tokens_event(sequence: Sequence, position: int) -> TokensEvent | None:
    """Return the tokens from `position` on, or None without tokens or an attached frontend."""
    request = sequence.request
    token_ids = tuple(sequence.tokens[sequence.num_prompt + position :])
    if request.handle is None or not token_ids:
        return None
    return TokensEvent(
        request.frontend_id,
        request.handle,
        sequence.choice,
        request.submission.epoch,
        position,
        token_ids,
        sequence.outcome.logprobs,
        sequence.num_cached_tokens or 0,
    )


def begun_event(request: Request) -> BegunEvent | None:
    """Return the weights of the output, or None without output or an attached frontend."""
    if request.handle is None or request.weights is None:
        return None
    epoch = request.submission.epoch
    return BegunEvent(request.frontend_id, request.handle, epoch, request.weights)


def prompt_event(request: Request, piece: PromptPiece) -> PromptLogprobsEvent | None:
    """Return log-probabilities of a part of the prompt, or None without an attached frontend."""
    if request.handle is None:
        return None
    epoch = request.submission.epoch
    return PromptLogprobsEvent(request.frontend_id, request.handle, epoch, piece)


def vector_event(sequence: Sequence) -> VectorEvent | None:
    """Return the vector of `sequence`, or None without a vector or an attached frontend."""
    request, vector = sequence.request, sequence.outcome.vector
    if request.handle is None or vector is None:
        return None
    epoch, num_cached = request.submission.epoch, sequence.num_cached_tokens or 0
    return VectorEvent(
        frontend_id=request.frontend_id,
        handle=request.handle,
        epoch=epoch,
        vector=vector,
        num_cached_tokens=num_cached,
    )


def timeline_event(sequence: Sequence) -> TimelineEvent | None:
    """Return the timeline of `sequence`, or None without an attached frontend."""
    request = sequence.request
    if request.handle is None:
        return None
    timeline = sequence.times.timeline(
        request.arrived_at,
        sequence.fairness.num_preemptions,
        () if request.moments is None else request.moments.of(sequence.choice),
    )
    epoch = request.submission.epoch
    return TimelineEvent(
        frontend_id=request.frontend_id,
        handle=request.handle,
        choice=sequence.choice,
        epoch=epoch,
        timeline=timeline,
    )


def finished_event(sequence: Sequence) -> FinishedEvent | None:
    """Return the end of `sequence`, or None without an attached frontend."""
    request = sequence.request
    if request.handle is None:
        return None
    return FinishedEvent(
        frontend_id=request.frontend_id,
        request_id=request.submission.request_id,
        handle=request.handle,
        choice=sequence.choice,
        epoch=request.submission.epoch,
        num_tokens=sequence.num_emitted,
        state=sequence.state,
        stop_token_id=sequence.outcome.stop_token_id,
        error=sequence.outcome.error,
        cached_tokens=sequence.times.cached_tokens,
        num_accepted_predicted=sequence.outcome.num_accepted_predicted,
        num_rejected_predicted=sequence.outcome.num_rejected_predicted,
    )


def resend(request: Request, next_positions: Seq[int]) -> list[Event]:
    """Return the events that a frontend with `next_positions` tokens per choice lacks.

    The received part of the prompt log-probabilities is not known, so all of them are resent.
    """
    begun = begun_event(request)
    events: list[Event] = [] if begun is None else [begun]
    if not all(position == ENDED for position in next_positions):
        new = (prompt_event(request, piece) for piece in request.prompt_pieces)
        events.extend(event for event in new if event is not None)
    for sequence, position in zip(request.sequences, next_positions, strict=True):
        if position == ENDED:
            continue
        # Beams are not output before their search has ended.
        is_output = sequence.state.is_finished or not sequence.is_beam
        if sequence.times.first_token_at is not None and is_output:
            events.extend(event for event in (timeline_event(sequence),) if event is not None)
        tokens = tokens_event(sequence, position) if is_output else None
        events.extend(event for event in (tokens, vector_event(sequence)) if event is not None)
        if sequence.state.is_finished:
            finished = finished_event(sequence)
            if finished is not None:
                events.append(finished)
    return events
