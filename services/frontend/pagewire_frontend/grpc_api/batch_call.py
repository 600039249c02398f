"""One call of many requests: opens a session for each, and packs whole answers into messages."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pagewire_frontend.access.api_keys import current_caller
from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.grpc_api.batch_convert import (
    Asked,
    Item,
    Message,
    Part,
    answer_parts,
    asked_of,
    error_part,
    packed,
)
from pagewire_frontend.grpc_api.convert import LastParams
from pagewire_frontend.session.reader_turns import ReaderTurns
from pagewire_frontend.session.session import Session
from pagewire_shared.errors import PagewireError
from pagewire_shared.exhaustion import fault_of

_logger = logging.getLogger(__name__)

MAX_ITEMS: Final = 256
"""Most requests of a call."""
MAX_BYTES: Final = 2 * 1024 * 1024
"""Size of a call with several requests. It is in memory as long as one of them is open; a single
request has the limit of any message."""
NUM_OPENERS: Final = 8
"""Requests of a call that are tokenized and checked at the same time."""


@dataclass(frozen=True, slots=True)
class OpenItem:
    """A request that was accepted; `prompt` is the text of a conversation, None otherwise."""

    session: Session
    asked: Asked
    prompt: str | None = None


class BatchCall:
    """The requests of one call, from `open` to `close`."""

    def __init__(self, engine: Engine, seconds: float | None, turns: ReaderTurns) -> None:
        """Create the call.

        Args:
            engine: Opens the sessions.
            seconds: Time for each request; None without a deadline.
            turns: Waited for before answers are packed; answers that come meanwhile join them.
        """
        self._engine = engine
        self._seconds = seconds
        self._turns = turns
        self._params = LastParams()
        self._open: dict[int, OpenItem] = {}
        self._ready: deque[tuple[int, OpenItem | PagewireError]] = deque()
        self._openers: list[asyncio.Task[None]] = []
        self._failure: PagewireError | None = None
        self._news = asyncio.Event()
        self._is_closed = False

    def open(self, items: Sequence[Item]) -> None:
        """Begin to open every request. A request that is refused gives an answer with its error."""
        numbered = iter(enumerate(items))
        self._openers = [asyncio.create_task(self._open_each(numbered)) for _ in range(NUM_OPENERS)]

    def fail(self, error: PagewireError) -> None:
        """End every request with an error, also those that are not open yet."""
        self._failure = error
        for item in list(self._open.values()):
            item.session.fail(error)

    def close(self) -> None:
        """Free everything that the call holds; again is allowed."""
        self._is_closed = True
        for task in self._openers:
            task.cancel()
        waiting = [item for _, item in self._ready if isinstance(item, OpenItem)]
        for item in [*self._open.values(), *waiting]:
            self._engine.close(item.session)
        self._open.clear()
        self._ready.clear()

    async def messages(self, num_items: int) -> AsyncIterator[Message]:
        """Yield the answers to all `num_items` requests, as they become complete."""
        while num_items:
            await self._news.wait()
            await self._turns.wait()
            self._news.clear()
            num_items -= len(self._ready)
            for message in packed(self._take_ready(len(self._ready))):
                yield message

    async def _open_each(self, items: Iterator[tuple[int, Item]]) -> None:
        for index, item in items:
            try:
                await self._open_one(index, item)
            except PagewireError as error:
                self._refuse(index, error)
            except Exception as error:
                _logger.exception("an internal error ends request %d of a call of many", index)
                failure = fault_of(error, "the frontend met an internal error in this request")
                self._refuse(index, failure)
            # To open a request takes some 0.3 ms of the event loop.
            await asyncio.sleep(0)

    async def _open_one(self, index: int, item: Item) -> None:
        if self._failure is not None:
            raise self._failure
        opened = await self._session(item)
        if self._is_closed:
            self._engine.close(opened.session)
            return
        self._open[index] = opened
        if opened.asked.is_chat:
            ids = opened.session.entry.prompt_token_ids
            model = opened.asked.options.request.model
            detokenize = self._engine.tokenization.detokenize
            text = await detokenize(model, ids, field="messages", skip_special_tokens=False)
            self._open[index] = replace(opened, prompt=text)
        opened.session.listen(partial(self._end, index), is_whole=True)

    def _refuse(self, index: int, error: PagewireError) -> None:
        opened = self._open.pop(index, None)
        if opened is not None:
            self._engine.close(opened.session)
        self._put(index, error)

    async def _session(self, item: Item) -> OpenItem:
        """Return the session of a request. Raises the error that refuses it."""
        caller = current_caller()
        if caller is not None:
            caller.usage.begin_request()
        asked = await asked_of(self._engine, item, self._seconds, self._params)
        try:
            session = await self._engine.open(asked.options.request)
        except PagewireError as error:
            raise asked.options.as_given(error) from error.__cause__
        return OpenItem(session, asked)

    def _end(self, index: int) -> None:
        """Note that a request may be over; output before that is left where it is."""
        item = self._open.get(index)
        if item is not None and item.session.is_over:
            self._put(index, self._open.pop(index))

    def _put(self, index: int, outcome: OpenItem | PagewireError) -> None:
        self._ready.append((index, outcome))
        self._news.set()

    def _take_ready(self, num_answers: int) -> Iterator[Part]:
        """Yield the next answers in parts of one event; each request is closed before."""
        while self._ready and num_answers:
            num_answers -= 1
            index, outcome = self._ready.popleft()
            yield from self._parts(index, outcome)

    def _parts(self, index: int, outcome: OpenItem | PagewireError) -> list[Part]:
        if isinstance(outcome, PagewireError):
            return [error_part(index, outcome)]
        try:
            return answer_parts(index, outcome.session, outcome.asked, outcome.prompt)
        except PagewireError as error:
            return [error_part(index, error)]
        finally:
            self._engine.close(outcome.session)
