"""Drives one response from its request to its last event: reads the session, fills the output and
keeps the status. Owns the session."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import orjson

from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.http.kept_streams.recipe_keeper import RecipeKeeper
from pagewire_frontend.http.openai.logprob_shapes import TokenNamer, chat_logprobs
from pagewire_frontend.http.responses.output import Event, Output
from pagewire_frontend.http.responses.pending_response import (
    Body,
    PendingResponse,
    error_body,
    usage_body,
)
from pagewire_frontend.message.pieces import MessagePieces
from pagewire_frontend.prompts.generation_request import TextPrompt
from pagewire_frontend.session.events import Closed, Delta, Finished, FinishReason, Usage
from pagewire_frontend.session.journal_records import TokenLogprob
from pagewire_frontend.session.session import Session
from pagewire_shared.errors import PagewireError


class TextLogprobs:
    """Log-probabilities of tokens whose text has not been assigned so far."""

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        """Create the text logprobs.

        Args:
            token_bytes: Returns the bytes that a token stands for.
        """
        self._token_bytes = token_bytes
        self._waiting: list[TokenLogprob] = []

    def push(self, logprobs: Sequence[TokenLogprob]) -> None:
        """Take the next tokens; their text may come later."""
        self._waiting.extend(logprobs)

    def take(self, text: str) -> list[TokenLogprob]:
        """Return the tokens that make up `text`, and forget them and all before them.

        Where the text is not found as a whole, for example because a hidden token is in its midst,
        all waiting tokens are returned.
        """
        if not text or not self._waiting:
            return []
        wanted = text.encode()
        pieces = [self._token_bytes(item.token_id) for item in self._waiting]
        begin = b"".join(pieces).find(wanted)
        if begin < 0:
            taken, self._waiting = self._waiting, []
            return taken
        first, last = _covering(pieces, begin, begin + len(wanted))
        taken = self._waiting[first:last]
        self._waiting = self._waiting[last:]
        return taken


def _covering(pieces: Sequence[bytes], begin: int, end: int) -> tuple[int, int]:
    """Return the range of pieces (end excluded) that hold bytes `begin` to `end`."""
    first = last = offset = 0
    for index, piece in enumerate(pieces):
        if offset + len(piece) <= begin:
            first = index + 1
        if offset < end:
            last = index + 1
        offset += len(piece)
    return first, last


_FINAL = ("completed", "incomplete", "failed", "cancelled")


class ResponseRun:
    """One running response. `open` it, read `events` once, `close` it whatever happens.

    Attributes:
        pending: The data that it is made from.
        error: The error that ended it, or None.
        moves: Whether an error ends it here alone: then `events` raises it.
    """

    def __init__(self, engine: Engine, pending: PendingResponse) -> None:
        self.pending = pending
        self.status = "queued"
        self.error: PagewireError | None = None
        self.moves: Callable[[PagewireError], bool] = lambda _: False
        self._engine = engine
        self._session: Session | None = None
        self._output = Output(pending.pins, pending.call_id)
        self._reader = pending.new_reader()
        self._namer = TokenNamer(pending.request.model.tokenizer, has_ids=False)
        self._logprobs = TextLogprobs(pending.request.model.tokenizer.token_bytes)
        self._details: dict[str, Any] = {}
        self._num_events = 0

    @property
    def is_over(self) -> bool:
        """Whether the status is final."""
        return self.status in _FINAL

    def body(self) -> Body:
        """Return the response as it is now."""
        return self.pending.body(self.status, self._output.items, **self._details)

    @property
    def session(self) -> Session:
        """The open session."""
        assert self._session is not None, "opened before"
        return self._session

    def numerics(self) -> bytes:
        """Return a digest of what decides the bits of its tokens; see Engine.numerics."""
        return self._engine.numerics(self.pending.request.model)

    async def open(self) -> None:
        """Ask the engine. Raises what `Engine.open` raises."""
        self._session = await self._engine.open(self.pending.request)

    async def wait_first(self) -> None:
        """Wait until an event is ready; raise the error of a request that failed before."""
        await self.session.wait_first()
        self.status = "in_progress"

    def created(self) -> list[Event]:
        """Return the first events."""
        events = [self._lifecycle("created")]
        if self.status == "queued":
            events.append(self._lifecycle("queued"))
        return events

    async def events(self, keeper: RecipeKeeper | None = None) -> AsyncIterator[list[Event]]:
        """Yield everything after `created`, in lists that are ready together, to the last event. An
        error is one of the events, unless it `moves`.

        Args:
            keeper: Learns the end before it is shown.
        """
        yield [self._lifecycle("in_progress")]
        try:
            async for event in self.session.events():
                if isinstance(event, Delta):
                    self._logprobs.push(event.logprobs)
                    found = self._take(self._reader.push(event.text))
                elif isinstance(event, Finished):
                    found = self._take(self._reader.push(event.text))
                    found += self._take(self._reader.finish())
                    found += self._end(event.reason)
                elif isinstance(event, Closed):
                    end = await self._end_facts(event.usage)
                    if keeper is not None:
                        await keeper.ended(orjson.dumps(end))
                    found = [self._completed(end)]
                else:
                    continue
                if found:
                    yield found
        except PagewireError as error:
            if self.moves(error):
                raise
            yield self.fail(error)

    def fail(self, error: PagewireError) -> list[Event]:
        """End the response with an error; return the events that report it."""
        if self.is_over:
            return []
        self.status, self.error = "failed", error
        events = self._numbered(self._output.finish("incomplete")) if self._output.items else []
        self._details["error"] = error_body(error)
        reported: Event = {
            "type": "error",
            "code": error.code,
            "message": error.message,
            "param": error.field,
        }
        events += self._numbered([reported])
        return [*events, self._lifecycle("failed")]

    def cancel(self) -> list[Event]:
        """End the response where it is; return the events that report it. A cancelled response has
        no event of its own in the API."""
        if self.is_over:
            return []
        self.status = "cancelled"
        if self._output.items:
            self._output.finish("incomplete")
        self.close()
        reported: Event = {
            "type": "error",
            "code": "cancelled",
            "message": "the response was cancelled",
            "param": None,
        }
        return self._numbered([reported])

    def close(self) -> None:
        """Free the session, here and at its scheduler."""
        if self._session is not None:
            self._engine.close(self._session)

    def _take(self, pieces: MessagePieces) -> list[Event]:
        events: list[Event] = []
        for part in pieces.parts or (pieces,):
            self._logprobs.take(part.reasoning)
            shown = []
            if self.pending.has_logprobs:
                tokens = self._logprobs.take(part.content)
                shown = chat_logprobs(tokens, self._namer)["content"]
            events += self._output.push(part, shown)
        return self._numbered(events)

    def _end(self, reason: FinishReason) -> list[Event]:
        is_cut = reason is FinishReason.LENGTH
        if is_cut:
            self._details["incomplete_details"] = {"reason": "max_output_tokens"}
        return self._numbered(self._output.finish("incomplete" if is_cut else "completed"))

    async def _end_facts(self, usage: Usage) -> dict[str, Any]:
        """Return what another run may not repeat: fields `usage` and `completed_at`."""
        pinned = self.pending.pinned_usage
        if pinned.body:
            known: dict[str, Any] = orjson.loads(pinned.body)
            return known
        if pinned.cached_tokens not in (None, usage.cached_tokens):
            usage = replace(usage, cached_tokens=pinned.cached_tokens, cached_tokens_by_tier={})
        thought = self._output.reasoning_text
        num_thought = 0
        if thought:
            # Counted for the text as a whole: in the stream, a token may belong to two items.
            prompt = TextPrompt(thought, add_special_tokens=False)
            request = self.pending.request
            ids = await self._engine.tokenize(
                request.model, prompt, tenant=request.tenant, field="output"
            )
            num_thought = len(ids)
        num_thought = min(num_thought, usage.completion_tokens)
        return {"usage": usage_body(usage, num_thought), "completed_at": int(time.time())}

    def _completed(self, end: dict[str, Any]) -> Event:
        self._details["usage"] = end["usage"]
        self.status = "incomplete" if "incomplete_details" in self._details else "completed"
        if self.status == "completed":
            self._details["completed_at"] = end["completed_at"]
        return self._lifecycle(self.status)

    def _lifecycle(self, kind: str) -> Event:
        [event] = self._numbered([{"type": f"response.{kind}", "response": self.body()}])
        return event

    def _numbered(self, events: list[Event]) -> list[Event]:
        for event in events:
            event["sequence_number"] = self._num_events
            self._num_events += 1
        return events
