"""One open request from its journal entry to its last event. Checks each message of the scheduler
against the journal, turns tokens into text and hands the reader all events that are ready.

The link sends messages to the scheduler, not this module.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Protocol

from pagewire_frontend.access.key_usage import Ticket
from pagewire_frontend.models.detokenizer import StreamTokenizer
from pagewire_frontend.session.choice_text import NO_MARKS, ChoiceEvent, ChoiceText, natural_end
from pagewire_frontend.session.events import (
    Closed,
    Delta,
    Event,
    Finished,
    FinishReason,
    OnText,
    Opened,
)
from pagewire_frontend.session.journal import JournalEntry
from pagewire_frontend.session.journal_records import (
    ACCEPTED,
    ReceiveOutcome,
    Score,
    SubmitRecord,
    TokenLogprob,
)
from pagewire_frontend.session.output_buffer import OutputBuffer
from pagewire_frontend.session.reader_turns import ReaderTurns
from pagewire_frontend.session.selection import Selection
from pagewire_frontend.session.session_meter import SessionMeter
from pagewire_frontend.session.session_summary import Summary, opened
from pagewire_frontend.traces.request_record import RequestRecord
from pagewire_shared.errors import DeadlineError, PagewireError


class SessionLink(Protocol):
    """The scheduler link of a session."""

    def abort_choice(self, session: "Session", choice: int) -> None:
        """Abort one choice at the scheduler."""
        ...

    def drop(self, session: "Session") -> None:
        """Abort the request at the scheduler, and forget it."""
        ...

    def forget(self, session: "Session") -> None:
        """Forget a request that has ended on both sides."""
        ...


class Session:
    """One open request. Has a single reader, which iterates `events` once, or listens and takes.

    Output that waits for a slow reader is merged per choice, so it is bounded by the request's
    output.
    """

    def __init__(
        self,
        entry: JournalEntry,
        tokenizer: StreamTokenizer,
        *,
        arrived_at: float,
        deadline: float | None,
        selection: Selection | None = None,
        marks: Mapping[int, str] = NO_MARKS,
        is_split: bool = False,
    ) -> None:
        """Create the session.

        Args:
            arrived_at: Time of arrival, in seconds of time.monotonic().
            deadline: End of the time for the request, likewise; None without one.
            selection: Holds everything back until all choices have ended.
            marks: What stands for tokens in the text, by token id.
            is_split: Each token is an event of its own.
        """
        self.entry = entry
        self.carrier: SessionLink | None = None
        self.ticket = Ticket()
        self.meter = SessionMeter(entry, arrived_at)
        self._deadline = deadline
        self._tokenizer = tokenizer
        self._selection = selection
        self._marks = marks
        self._texts = self._new_texts()
        self._is_split = is_split and selection is None
        self._output = OutputBuffer(selection, is_split=self._is_split)
        self._error: PagewireError | None = None
        self._is_taken = False
        self._wake = asyncio.Event()
        self._on_ready: Callable[[], None] = self._wake.set
        self._on_text: OnText | None = None
        self._is_whole = False
        self._timer: asyncio.TimerHandle | None = None
        if deadline is not None:
            delay = max(0.0, deadline - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay, self._expire)

    @property
    def is_over(self) -> bool:
        """Whether no more can come: all choices ended, or the request failed."""
        return self._error is not None or self.entry.is_finished

    @property
    def num_choices(self) -> int:
        """Number of choices for the reader."""
        return self._selection.num_shown if self._selection else len(self.entry.choices)

    @property
    def num_tokens(self) -> int:
        """Tokens of the prompt and of all answers so far."""
        entry = self.entry
        return len(entry.prompt_token_ids) + sum(len(c.token_ids) for c in entry.choices)

    @property
    def remaining_ms(self) -> int | None:
        """Milliseconds until the deadline; None without one."""
        if self._deadline is None:
            return None
        return max(0, int((self._deadline - time.monotonic()) * 1000))

    @property
    def age_ms(self) -> int:
        """Milliseconds since the request arrived."""
        return max(0, int((time.monotonic() - self.meter.arrived_at) * 1000))

    def submit(self, handle: int) -> SubmitRecord:
        """Return the request for a scheduler, for the first time or again."""
        record = self.entry.submit(handle)
        self.meter.note_submit()
        if self.entry.params.use_beam_search:
            # The journal has dropped the tokens of an earlier search, which no reader has seen.
            self._texts = self._new_texts()
            self._output.drop_answer()
        return record

    def on_prompt_logprobs(
        self, epoch: int, first_position: int, scores: Sequence[Score]
    ) -> ReceiveOutcome:
        """Take a piece of prompt log-probabilities. On a GAP the caller submits again."""
        outcome, new = self.entry.accept_prompt_logprobs(epoch, first_position, scores)
        self._output.put_prompt(new, is_complete=self.entry.is_prompt_complete)
        # Nothing can be shown before the last position: an earlier failure is the whole answer.
        if outcome is ReceiveOutcome.ACCEPTED and self.entry.is_prompt_complete:
            self._wake_reader()
        return outcome

    def on_tokens(
        self,
        epoch: int,
        choice: int,
        first_position: int,
        token_ids: list[int],
        logprobs: list[TokenLogprob],
        num_cached_tokens: int,
        now: float,
    ) -> ReceiveOutcome:
        """Take a chunk of the scheduler that came at `now`. On a GAP the caller submits again."""
        if self._error is not None:
            return ReceiveOutcome.DUPLICATE
        if logprobs and self.entry.params.logprobs is None:
            # Another request of the step wants log-probabilities.
            logprobs = []
        outcome, num_known = self.entry.accept_tokens(
            epoch, choice, first_position, token_ids, logprobs
        )
        if outcome is not ACCEPTED:
            return outcome
        if num_known:
            first_position += num_known
            token_ids, logprobs = token_ids[num_known:], logprobs[num_known:]
        if self._is_split:
            pushed = self._push_split(choice, first_position, token_ids, logprobs)
        else:
            pushed = self._texts[choice].push(token_ids)
        num_taken, text, stop_string = pushed
        if self.meter.first_at is None:
            self.meter.first_output(now, num_cached_tokens, epoch, choice)
        self.meter.latencies[choice].chunk(num_taken, now)
        if self._is_split:
            if not self._output.is_empty:
                self._wake_reader()
        elif self._on_text is None or not self._output.is_empty or not self._on_text(text):
            taken = token_ids[:num_taken], text, logprobs[:num_taken]
            self._output.put_delta(Delta(choice, first_position, *taken))
            self._wake_reader()
        if stop_string is not None:
            self._stop(choice, first_position + num_taken, stop_string)
        return ACCEPTED

    def _push_split(
        self, choice: int, first: int, token_ids: list[int], logprobs: list[TokenLogprob]
    ) -> ChoiceEvent:
        """Put an event for each token, and return what ChoiceText.push returns of them all."""
        for index, token_id in enumerate(token_ids):
            _, text, stop_string = self._texts[choice].push([token_id])
            if self._on_text is None or not self._output.is_empty or not self._on_text(text):
                taken = [token_id], text, logprobs[index : index + 1]
                self._output.put_delta(Delta(choice, first + index, *taken))
            if stop_string is not None:
                return index + 1, "", stop_string
        return len(token_ids), "", None

    def _stop(self, choice: int, num_tokens: int, stop_string: str) -> None:
        """End a choice at a stop string, after `num_tokens` of its tokens."""
        self.entry.cut(choice, num_tokens)
        # A beam search is over when its first tokens come: there is nothing left to abort.
        if self.carrier is not None and not self.entry.params.use_beam_search:
            self.carrier.abort_choice(self, choice)
        self._add_end(Finished(choice, FinishReason.STOP, stop_string=stop_string))

    def on_vector(self, epoch: int, vector: bytes, num_cached_tokens: int) -> ReceiveOutcome:
        """Take the vector, which stays in the journal entry. On a GAP the caller submits again."""
        outcome = self.entry.accept_vector(epoch, vector)
        if outcome is ReceiveOutcome.ACCEPTED:
            self.meter.first_output(time.monotonic(), num_cached_tokens, epoch, 0)
        return outcome

    def on_finished(
        self,
        epoch: int,
        choice: int,
        num_tokens: int,
        reason: FinishReason,
        stop_token_id: int | None,
        error: PagewireError | None,
    ) -> ReceiveOutcome:
        """Take the end of a choice from the scheduler. On a GAP the caller submits again."""
        has_failed = reason in (FinishReason.FAILED, FinishReason.ABORTED)
        if has_failed and self._is_running(epoch, choice):
            self.fail(error or DeadlineError("the deadline of the request passed"))
            return ReceiveOutcome.ACCEPTED
        outcome = self.entry.finish(epoch, choice, num_tokens)
        if outcome is ReceiveOutcome.ACCEPTED:
            self._end(choice, reason, stop_token_id)
        return outcome

    def _is_running(self, epoch: int, choice: int) -> bool:
        # The end of a choice that this frontend cut itself is not a failure.
        choices = self.entry.choices
        is_known = epoch == self.entry.epoch and choice < len(choices)
        return is_known and not choices[choice].is_finished

    def end_complete_choices(self) -> None:
        """End the choices whose tokens are a whole output, before the request is submitted again. A
        beam search is computed again as a whole."""
        if self.entry.params.use_beam_search:
            return
        for index, choice in enumerate(self.entry.choices):
            end = natural_end(choice.token_ids, self.entry.params, self.entry.eos_token_ids)
            if self.entry.vector is not None:
                end = FinishReason.STOP, None
            if end is not None and not choice.is_finished:
                self.entry.cut(index, choice.next_position)
                self._end(index, *end)

    def fail(self, error: PagewireError) -> None:
        """End the request with an error; events that are ready are still delivered before it."""
        if self.is_over:
            return
        self._error = error
        if self._selection is not None:
            self._output.drop_answer()
        self._wake_reader()
        if self.carrier is not None:
            self.carrier.drop(self)

    def release(self) -> None:
        """Cancel the deadline and drop the reader's callbacks, which would form a cycle."""
        self._on_ready, self._on_text = self._wake.set, None
        if self._timer is not None:
            self._timer.cancel()

    def end_measuring(self) -> None:
        """Count the end of the request in the metrics; it is closed, however far it came."""
        self.meter.closed(self._error)

    def record(self) -> RequestRecord:
        """Return what the request leaves behind for its trace."""
        return self.meter.record(self._error)

    def summary(self) -> Summary:
        """Return the log record of the request."""
        return self.meter.summary(self._error)

    def opened(self) -> Opened:
        """Return the first event."""
        return opened(self.entry)

    async def wait_first(self) -> None:
        """Wait until an event is ready; raise the error of a request that failed before."""
        await self._wake.wait()
        if self._error is not None and not self._output.has_ready:
            raise self._error

    async def events(self, turns: ReaderTurns | None = None) -> AsyncIterator[Event]:
        """Yield everything after `opened`: deltas of a choice in order, its end, and Closed. Raises
        what `take` raises.

        Args:
            turns: Waited for before ready events are taken; output that comes meanwhile is merged.
        """
        while True:
            await self._wake.wait()
            if turns is not None:
                await turns.wait()
            self._wake.clear()
            for event in self.take():
                yield event
                if isinstance(event, Closed):
                    return

    def listen(
        self,
        on_ready: Callable[[], None],
        on_text: OnText | None = None,
        *,
        is_whole: bool = False,
    ) -> None:
        """Call `on_ready` whenever there are events to take, and at once if there are already.

        Args:
            on_ready: Called without arguments; must not raise.
            on_text: Is offered the text of the one choice while nothing waits; must not raise.
            is_whole: Call `on_ready` only when all output is there.
        """
        self._is_whole = is_whole
        is_awake = self._wake.is_set()
        self._on_ready = on_ready
        if self.num_choices == 1 and self._selection is None:
            self._on_text = on_text
        if is_awake:
            on_ready()

    def take(self) -> list[Event]:
        """Return all ready events, in order, Closed last.

        Raises:
            PagewireError: The request failed, and all events before that have been taken.
        """
        events: list[Event] = self._output.take(self.entry.choices)
        if self._error is not None:
            if not events:
                raise self._error
            # The next take raises.
            self._on_ready()
        elif self.entry.is_finished and not self._is_taken:
            self._is_taken = True
            events.append(Closed(self.meter.usage(self._selection), self.meter.timings()))
        return events

    def _wake_reader(self) -> None:
        # A selection from all choices is not ready before the last has ended.
        if self.is_over or (self._selection is None and not self._is_whole):
            self._on_ready()

    def _new_texts(self) -> list[ChoiceText]:
        entry, ids = self.entry, self.entry.prompt_token_ids
        return [
            ChoiceText(self._tokenizer, ids, entry.params, entry.eos_token_ids, marks=self._marks)
            for _ in entry.choices
        ]

    def _expire(self) -> None:
        self.fail(DeadlineError("the deadline of the request passed"))

    def _end(self, choice: int, reason: FinishReason, stop_token_id: int | None) -> None:
        _, text, stop_string = self._texts[choice].flush()
        if stop_string is not None:
            reason, stop_token_id = FinishReason.STOP, None
        self._add_end(Finished(choice, reason, text, stop_string, stop_token_id))

    def _add_end(self, end: Finished) -> None:
        self._output.put_end(end)
        self.meter.finished(end.choice, end.reason.value)
        # The handle is freed at once, so that a slow reader does not hold it.
        if self.entry.is_finished and self.carrier is not None:
            self.carrier.forget(self)
        self._wake_reader()
