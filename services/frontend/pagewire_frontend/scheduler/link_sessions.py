"""The sessions of one scheduler link: handles, submits, re-submits and aborts, and the hand-out of
the scheduler's messages. Knows messages but no stream, which is the link's."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypeVar

from pagewire_frontend.scheduler import convert as link_messages
from pagewire_frontend.scheduler.convert import timelines
from pagewire_frontend.scheduler.submit_queue import SubmitQueue
from pagewire_frontend.session.events import PredictedTokens
from pagewire_frontend.session.journal import EntryState
from pagewire_frontend.session.journal_records import ACCEPTED, HeldRecord, ReceiveOutcome
from pagewire_frontend.session.session import Session
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as pb
from pagewire_shared.errors import InternalError, InvalidRequestError, OverloadedError, WireError
from pagewire_shared.exhaustion import fault_of
from pagewire_shared.identity.ids import RequestId, short
from pagewire_shared.rpc.errors import from_detail
from pagewire_shared.rpc.send_queue import MESSAGE_BYTES

HELD_BYTES = MESSAGE_BYTES // 2
"""Most bytes of the list of a hello, estimated; requests beyond are submitted again."""

_HELD_RECORD_BYTES = 40

_BROKEN = "an internal error ends request %s"

Result = TypeVar("Result")

_logger = logging.getLogger(__name__)


class LinkSessions:
    """Every session of one link is in exactly one of two places: under a handle of the stream, or
    detached. Sessions of both that are to be submitted wait in a queue for the stream to take them.
    """

    def __init__(
        self,
        send: Callable[[pb.AttachFrontendRequest], None],
        send_each: Callable[[Iterator[pb.AttachFrontendRequest]], None],
        cache_bytes_of: Callable[[str | None], int | None] = lambda tenant: None,
    ) -> None:
        """Create the link sessions.

        Args:
            send_each: Queues messages that are made when they are written.
            cache_bytes_of: Returns what a tenant may keep in the cache of each worker.
        """
        self._send = send
        self._cache_bytes_of = cache_bytes_of
        self._by_handle: dict[int, Session] = {}
        self._detached: dict[RequestId, Session] = {}
        self._next_handle = 0
        self.is_joining = False
        """Whether the scheduler reads messages of several submits."""
        self._send_each = send_each
        self.submits: SubmitQueue[pb.AttachFrontendRequest] = SubmitQueue(
            self._pack, self._send_submits
        )

    def __len__(self) -> int:
        return len(self._by_handle) + len(self._detached)

    @property
    def handles(self) -> Mapping[int, Session]:
        """Sessions on the stream by handle."""
        return self._by_handle

    @property
    def detached(self) -> list[Session]:
        """Sessions that wait for the stream: for its return, or to be written to it."""
        return list(self._detached.values())

    def submit(self, session: Session) -> None:
        """Take a new request. Raises OverloadedError when too much waits to be written."""
        self._hold(session)
        try:
            self.submits.add_new(session)
        except OverloadedError:
            self.forget(session)
            raise

    def resume(self, session: Session) -> None:
        """Take a request that was accepted before, here or for another scheduler: it waits until it
        is written, before all new requests."""
        self._hold(session)
        self.submits.add_resumed(session)

    def _hold(self, session: Session) -> None:
        session.carrier = self
        self._detached[session.entry.request_id] = session

    def abort_choice(self, session: Session, choice: int) -> None:
        """Abort one choice at the scheduler."""
        if session.entry.handle is not None:
            self._send(link_messages.abort_message(session.entry.handle, choice))

    def drop(self, session: Session) -> None:
        """Abort the request at the scheduler, and forget it."""
        handle = session.entry.handle
        self.forget(session)
        if handle is not None:
            self._send(link_messages.abort_message(handle))

    def forget(self, session: Session) -> None:
        """Forget a request that has ended on both sides."""
        if session.entry.handle is not None:
            self._by_handle.pop(session.entry.handle, None)
        self._detached.pop(session.entry.request_id, None)
        self.submits.forget(session)
        session.carrier = None

    # Losing the stream and getting it back.

    def detach_all(self) -> None:
        """Detach all sessions: the stream ended."""
        self.submits.clear()
        for session in self._by_handle.values():
            session.entry.detach()
            self._detached[session.entry.request_id] = session
        self._by_handle.clear()

    def release(self, session: Session) -> None:
        """Give up a detached session, for another scheduler to take."""
        del self._detached[session.entry.request_id]
        self.submits.forget(session)
        session.carrier = None
        if session.entry.state is EntryState.DETACHED:
            session.entry.release()

    def introduce(self) -> tuple[dict[int, Session], list[HeldRecord]]:
        """Return the detached sessions that the scheduler may still have, by their handles on a new
        stream, and a hello's list. As many as a message has room for."""
        self._next_handle = 0
        asked: dict[int, Session] = {}
        num_bytes = 0
        for session in self._detached.values():
            if session.entry.state is EntryState.DETACHED:
                num_bytes += _HELD_RECORD_BYTES + 4 * len(session.entry.choices)
                if num_bytes > HELD_BYTES:
                    break
                asked[self._mint_handle()] = session
        return asked, [session.entry.held(handle) for handle, session in asked.items()]

    def resubmit_open(self, asked: Mapping[int, Session], resumed: set[int]) -> None:
        """Go on with the sessions of a hello: the resumed as they were. All others are submitted,
        sessions with output first."""
        for handle in resumed & asked.keys():
            session = asked[handle]
            # The client may have gone while the scheduler read the hello.
            if self._detached.pop(session.entry.request_id, None) is not None:
                session.entry.reattach(handle)
                self._by_handle[handle] = session
            else:
                self._send(link_messages.abort_message(handle))
        for session in sorted(self._detached.values(), key=lambda one: not one.entry.has_output):
            self.submits.add_resumed(session)

    def _send_submits(self, messages: Iterator[pb.AttachFrontendRequest]) -> None:
        self._send_each(link_messages.joined_submits(messages) if self.is_joining else messages)

    def _pack(self, session: Session) -> pb.AttachFrontendRequest | None:
        """Return the message that submits a session; None when the session is over."""
        message = self._alone(session, lambda: self._submit_again(session))
        if message is None or (num_bytes := message.ByteSize()) <= MESSAGE_BYTES:
            return message
        self.forget(session)
        session.fail(
            InvalidRequestError(
                f"the request takes {num_bytes} bytes, where a scheduler takes {MESSAGE_BYTES}",
                field="prompt",
            )
        )
        return None

    def _submit_again(self, session: Session) -> pb.AttachFrontendRequest | None:
        """Submit from the next positions with epoch + 1, under a new handle."""
        if session.entry.handle is not None:
            self._by_handle.pop(session.entry.handle, None)
        if session.entry.epoch >= 0:
            session.end_complete_choices()
        if session.is_over:
            self.drop(session)
            return None
        self._detached.pop(session.entry.request_id, None)
        handle = self._mint_handle()
        record = session.submit(handle)
        self._by_handle[handle] = session
        cache_bytes = self._cache_bytes_of(record.tenant)
        return link_messages.submit_message(
            record, session.remaining_ms, session.age_ms, cache_bytes
        )

    def _mint_handle(self) -> int:
        self._next_handle += 1
        return self._next_handle

    # Messages of the scheduler.

    def on_prompt_logprobs(self, batch: pb.PromptLogprobBatch) -> None:
        """Hand out the log-probabilities of prompts. Raises WireError."""
        for piece in link_messages.prompt_pieces(batch):
            session = self._by_handle.get(piece.handle)
            if session is None or session.is_over:
                continue
            num_prompt = len(session.entry.prompt_token_ids)
            if piece.first_position + len(piece.scores) > num_prompt:
                raise WireError(f"a prompt of {num_prompt} tokens has no position beyond")
            reported = piece.epoch, piece.first_position, piece.scores
            verdict = self._alone(session, partial(session.on_prompt_logprobs, *reported))
            if verdict is ReceiveOutcome.GAP:
                self._on_gap(session)

    def on_timelines(self, batch: pb.TimelineBatch) -> None:
        """Hand out the timelines of choices. Raises WireError."""
        for handle, epoch, choice, timeline in timelines(batch):
            session = self._by_handle.get(handle)
            if session is not None and not session.is_over:
                reported = epoch, choice, timeline
                self._alone(session, partial(session.meter.note_timeline, *reported))

    def on_begun(self, batch: pb.BegunBatch) -> None:
        """Note the weights of the requests whose output begins."""
        for handle, epoch, weights in link_messages.begun_requests(batch):
            session = self._by_handle.get(handle)
            if session is not None and not session.is_over:
                self._alone(session, partial(session.entry.begin, epoch, weights))

    def on_tokens(self, batch: pb.TokenBatch) -> None:
        """Hand out the tokens of a step. Raises WireError."""
        now = time.monotonic()
        chunks = link_messages.token_chunks(batch)
        for handle, epoch, choice, first, ids, logprobs, cached in chunks:
            session = self._by_handle.get(handle)
            if session is None:
                continue
            try:
                verdict = session.on_tokens(epoch, choice, first, ids, logprobs, cached, now)
            except Exception as error:
                _logger.exception(_BROKEN, short(session.entry.request_id))
                self._give_up(session, error)
                continue
            if verdict is not ACCEPTED and verdict is ReceiveOutcome.GAP:
                self._on_gap(session)

    def on_vectors(self, batch: pb.VectorBatch) -> None:
        """Hand out the vectors of a step. Raises WireError."""
        for item in link_messages.vector_items(batch):
            session = self._by_handle.get(item.handle)
            if session is None or session.is_over:
                continue
            if session.entry.pooling is None:
                raise WireError("a vector came for a request that wants none")
            reported = item.epoch, item.vector, item.num_cached_tokens
            verdict = self._alone(session, partial(session.on_vector, *reported))
            if verdict is ReceiveOutcome.GAP:
                self._on_gap(session)

    def on_finished(self, message: pb.FinishedChoices) -> None:
        """Hand out the ends of choices. Raises WireError."""
        for item in message.choices:
            session = self._by_handle.get(item.handle)
            if session is None or session.is_over:
                continue
            tiers = link_messages.cached_tiers(item)
            reported = item.epoch, item.choice, tiers
            self._alone(session, partial(session.meter.note_cached, *reported))
            predicted = PredictedTokens(item.num_accepted_predicted, item.num_rejected_predicted)
            session.meter.note_predicted(item.epoch, item.choice, predicted)
            end = partial(
                session.on_finished,
                item.epoch,
                item.choice,
                item.num_tokens,
                link_messages.finish_reason(item),
                item.stop_token_id if item.HasField("stop_token_id") else None,
                from_detail(item.error) if item.HasField("error") else None,
            )
            if self._alone(session, end) is ReceiveOutcome.GAP:
                self._on_gap(session)

    def _on_gap(self, session: Session) -> None:
        if session in self.submits:
            return
        if session.entry.note_gap():
            session.fail(_error_of_gaps(session))
            return
        self.submits.add_resumed(session)

    def _alone(self, session: Session, call: Callable[[], Result]) -> Result | None:
        """Return what `call` returns; None when it raised, which ends only this session."""
        try:
            return call()
        except Exception as error:
            _logger.exception(_BROKEN, short(session.entry.request_id))
            self._give_up(session, error)
            return None

    def _give_up(self, session: Session, error: Exception) -> None:
        """End a session that met an internal error; all other sessions go on."""
        try:
            session.fail(fault_of(error, "the frontend met an internal error in this request"))
        except Exception:
            _logger.exception(_BROKEN, short(session.entry.request_id))
        if session.carrier is self:
            self.drop(session)

    def on_failing(self, message: pb.Failing) -> None:
        """Give up a request at which schedulers fail; after its first fault a request is submitted
        again."""
        for session in list(self._by_handle.values()):
            named = session.entry.request_id in message.request_ids
            if named and session.entry.note_fault():
                num = session.entry.num_faults
                error = f"the scheduler failed {num} times while it worked on this request"
                session.fail(InternalError(error))

    def on_rejected(self, message: pb.Rejected) -> None:
        """Fail the request that was refused; one that has begun tries again where that helps."""
        session = self._by_handle.get(message.handle)
        if session is None or message.epoch != session.entry.epoch:
            return
        error = from_detail(message.error)
        if session.entry.epoch > 0 and error.retry_after_ms is not None:
            # A stream outlives a crowded moment after a restart.
            delay = error.retry_after_ms / 1000
            loop = asyncio.get_running_loop()
            loop.call_later(delay, self._try_again, session, session.entry.epoch)
            return
        # The scheduler holds nothing of the request, so there is nothing to abort.
        self.forget(session)
        session.fail(error)

    def _try_again(self, session: Session, epoch: int) -> None:
        entry = session.entry
        if entry.state is EntryState.SUBMITTED and entry.epoch == epoch and not session.is_over:
            self.submits.add_resumed(session)


def _error_of_gaps(session: Session) -> InternalError:
    if not session.entry.is_prompt_complete:
        return InternalError("the scheduler does not send the log-probabilities of the prompt")
    num = session.entry.num_gaps
    return InternalError(f"{num} times in a row the scheduler left out what this frontend lacks")
