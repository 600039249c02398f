"""The sessions that one scheduler has, or had until its stream broke: handles, submits,
re-submits and aborts, and what the scheduler says about them. Knows messages and no stream; the
link around it does.
"""

import asyncio
import time
from collections.abc import Callable, Mapping

from pagewire_frontend import link_messages
from pagewire_frontend.journal import EntryState
from pagewire_frontend.request_records import HeldRecord
from pagewire_frontend.session import Session
from pagewire_frontend.timeline_convert import timelines
from pagewire_frontend.verdict import ACCEPTED, Verdict
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as pb
from pagewire_shared.errors import InternalError, OverloadedError, WireError
from pagewire_shared.ids import RequestId
from pagewire_shared.rpc.errors import from_detail


class CarriedSessions:
    """Every session of one link is in exactly one of two places: under a handle of the stream, or
    detached."""

    def __init__(
        self,
        offer: Callable[[pb.AttachFrontendRequest], bool],
        send: Callable[[pb.AttachFrontendRequest], None],
    ) -> None:
        """Args: `offer` queues a message if there is room; `send` queues one that must not be
        lost."""
        self._offer = offer
        self._send = send
        self._by_handle: dict[int, Session] = {}
        self._detached: dict[RequestId, Session] = {}
        self._next_handle = 0

    def __len__(self) -> int:
        return len(self._by_handle) + len(self._detached)

    @property
    def handles(self) -> Mapping[int, Session]:
        """Sessions on the stream by handle."""
        return self._by_handle

    @property
    def detached(self) -> list[Session]:
        """Sessions that wait for the stream's return."""
        return list(self._detached.values())

    def submit(self, session: Session) -> None:
        """Send a request. Raises OverloadedError when too much waits to be written."""
        handle = self._mint_handle()
        record = session.submit(handle)
        if not self._offer(link_messages.submit_message(record, session.remaining_ms)):
            raise OverloadedError("too many requests wait to be sent to the scheduler")
        session.carrier = self
        self._by_handle[handle] = session

    def abort_choice(self, session: Session, choice: int) -> None:
        """Tell the scheduler that one choice is not wanted any more."""
        if session.entry.handle is not None:
            self._send(link_messages.abort_message(session.entry.handle, choice))

    def drop(self, session: Session) -> None:
        """Tell the scheduler that nothing of the request is wanted, and forget it."""
        handle = session.entry.handle
        self.forget(session)
        if handle is not None:
            self._send(link_messages.abort_message(handle))

    def forget(self, session: Session) -> None:
        """Forget a request that has ended on both sides."""
        if session.entry.handle is not None:
            self._by_handle.pop(session.entry.handle, None)
        self._detached.pop(session.entry.request_id, None)
        session.carrier = None

    # Losing the stream and getting it back.

    def detach_all(self) -> None:
        """The stream ended."""
        for session in self._by_handle.values():
            session.entry.detach()
            self._detached[session.entry.request_id] = session
        self._by_handle.clear()

    def release(self, session: Session) -> None:
        """Give up a detached session, for another scheduler to take."""
        del self._detached[session.entry.request_id]
        session.carrier = None
        session.entry.release()

    def introduce(self) -> tuple[dict[int, Session], list[HeldRecord]]:
        """Return the detached sessions by their handles on a new stream, and a hello's list."""
        self._next_handle = 0
        asked = {self._mint_handle(): session for session in self._detached.values()}
        return asked, [session.entry.held(handle) for handle, session in asked.items()]

    def take_back(self, asked: Mapping[int, Session], resumed: set[int]) -> None:
        """Go on with the sessions of a hello: the resumed as they were, others submitted again."""
        for handle, session in asked.items():
            # The client may have gone while the scheduler read the hello.
            is_wanted = self._detached.pop(session.entry.request_id, None) is not None
            if is_wanted and handle in resumed:
                session.entry.reattach(handle)
                self._by_handle[handle] = session
            elif is_wanted:
                self._resubmit(session)
            elif handle in resumed:
                self._send(link_messages.abort_message(handle))

    def _resubmit(self, session: Session) -> None:
        """Submit from the next positions with epoch + 1, under a new handle."""
        if session.entry.handle is not None:
            self._by_handle.pop(session.entry.handle, None)
        session.settle()
        if session.is_over:
            self.drop(session)
            return
        handle = self._mint_handle()
        record = session.submit(handle)
        self._by_handle[handle] = session
        self._send(link_messages.submit_message(record, session.remaining_ms))

    def _mint_handle(self) -> int:
        self._next_handle += 1
        return self._next_handle

    # What the scheduler says.

    def on_prompt_logprobs(self, batch: pb.PromptLogprobBatch) -> None:
        """Hand out the log-probabilities of prompts. Raises WireError."""
        for piece in link_messages.prompt_pieces(batch):
            session = self._by_handle.get(piece.handle)
            if session is None or session.is_over:
                continue
            num_prompt = len(session.entry.prompt_token_ids)
            if piece.first_position + len(piece.scores) > num_prompt:
                raise WireError(f"a prompt of {num_prompt} tokens has no position beyond")
            verdict = session.on_prompt_logprobs(piece.epoch, piece.first_position, piece.scores)
            if verdict is Verdict.GAP:
                self._on_gap(session)

    def on_timelines(self, batch: pb.TimelineBatch) -> None:
        """Hand out where the time of choices went. Raises WireError."""
        for handle, epoch, choice, timeline in timelines(batch):
            session = self._by_handle.get(handle)
            if session is not None and not session.is_over:
                session.meter.note_timeline(epoch, choice, timeline)

    def on_tokens(self, batch: pb.TokenBatch) -> None:
        """Hand out the tokens of a step. Raises WireError."""
        now = time.monotonic()
        chunks = link_messages.token_chunks(batch)
        for handle, epoch, choice, first, ids, logprobs, cached in chunks:
            session = self._by_handle.get(handle)
            if session is None:
                continue
            verdict = session.on_tokens(epoch, choice, first, ids, logprobs, cached, now)
            if verdict is not ACCEPTED and verdict is Verdict.GAP:
                self._on_gap(session)

    def on_vectors(self, batch: pb.VectorBatch) -> None:
        """Hand out the vectors of a step. Raises WireError."""
        for item in link_messages.vector_items(batch):
            session = self._by_handle.get(item.handle)
            if session is None or session.is_over:
                continue
            if session.entry.pooling is None:
                raise WireError("a vector came for a request that wants none")
            verdict = session.on_vector(item.epoch, item.vector, item.num_cached_tokens)
            if verdict is Verdict.GAP:
                self._resubmit(session)

    def on_finished(self, message: pb.FinishedChoices) -> None:
        """Hand out the ends of choices. Raises WireError."""
        for item in message.choices:
            session = self._by_handle.get(item.handle)
            if session is None or session.is_over:
                continue
            tiers = link_messages.cached_tiers(item)
            session.meter.note_cached(item.epoch, item.choice, tiers)
            verdict = session.on_finished(
                item.epoch,
                item.choice,
                item.num_tokens,
                link_messages.finish_reason(item),
                item.stop_token_id if item.HasField("stop_token_id") else None,
                from_detail(item.error) if item.HasField("error") else None,
            )
            if verdict is Verdict.GAP:
                self._on_gap(session)

    def _on_gap(self, session: Session) -> None:
        prompt = session.entry.prompt_journal
        if prompt is not None and prompt.note_gap():
            session.fail(
                InternalError("the scheduler does not send the log-probabilities of the prompt")
            )
            return
        self._resubmit(session)

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
        # It holds nothing there, so there is nothing to abort.
        self.forget(session)
        session.fail(error)

    def _try_again(self, session: Session, epoch: int) -> None:
        entry = session.entry
        if entry.state is EntryState.SUBMITTED and entry.epoch == epoch and not session.is_over:
            self._resubmit(session)
