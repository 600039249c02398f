"""One frontend process: the real journal, sessions, links and pool, with streams in memory and
clients that hold what they read against the naive model."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from simulation.clock import Clock, VirtualLoop
from simulation.coverage import Coverage
from simulation.model.naive import LETTERS
from simulation.processes.client import Client
from simulation.processes.stores import BYTES_PER_BLOCK
from simulation.processes.streams import Stream

from pagewire_frontend.scheduler import convert as link_messages
from pagewire_frontend.scheduler.link import LinkSettings, SchedulerLink
from pagewire_frontend.scheduler.pool import SchedulerPool
from pagewire_frontend.session.journal import EntryState, Journal
from pagewire_shared.errors import PagewireError
from pagewire_shared.rpc.address import Address
from pagewire_shared.rpc.send_queue import SendQueue

MODEL = "tiny"
TOKENIZER = b"t" * 32


def _cache_bytes_of(tenant: str | None) -> int | None:
    """Return what tenants may keep in a cache: three blocks, or all."""
    return 3 * BYTES_PER_BLOCK if tenant == "a" else None


class Letters:
    """A tokenizer of one letter per token."""

    def open_stream(self, first_ids: Any, *, skip_special_tokens: bool) -> Callable[[int], str]:
        return LETTERS.__getitem__

    def decode(self, token_ids: Any, *, skip_special_tokens: bool) -> str:
        return "".join(LETTERS[token] for token in token_ids)

    def byte_reader(self, *, skip_special_tokens: bool) -> None:
        return None


class Outgoing:
    """What a link calls its stream: an outbox that is written when the stream lets it."""

    def __init__(self, stream: Stream, num_submits: Counter[bytes], clock: Clock) -> None:
        self.stream = stream
        self.num_submits = num_submits
        self._clock = clock
        self._outbox: SendQueue[Any] = SendQueue(max_bytes=0, clock=lambda: clock.now)
        self.send = self._outbox.put
        self.send_each = self._outbox.put_each

    @property
    def is_empty(self) -> bool:
        return not self._outbox._entries

    def write(self) -> None:
        """Write what waits, made now and not when it was queued."""
        while self.stream.is_written(self._clock.now):
            message = self._outbox._next()
            if message is None:
                return
            if message.WhichOneof("message") == "submit":
                self.num_submits[message.submit.request_id] += 1
            self.stream.send_up(message)


class LinkEnd:
    """A link of a frontend with its stream, if it has one."""

    def __init__(self, frontend: "Frontend", link: SchedulerLink, cell: Any) -> None:
        self.frontend = frontend
        self.link = link
        self.cell = cell
        self.stream: Stream | None = None
        self.outgoing: Outgoing | None = None
        self.asked: Any = None
        self.lost_at = 0.0

    @property
    def is_writing(self) -> bool:
        """Whether something waits to be written."""
        return self.outgoing is not None and not self.outgoing.is_empty

    def dial(self) -> None:
        """The beginning of SchedulerLink._attach_once."""
        frontend, link = self.frontend, self.link
        frontend.loop.enter()
        self.stream = Stream("frontend", self, self.cell)
        self.cell.connect(self.stream)
        self.asked, held = link.carried.introduce()
        self.stream.send_up(
            link_messages.hello_message(
                frontend_id=frontend.frontend_id,
                highest_generation=link._seen.highest,
                fingerprints=link._settings.fingerprints.items(),
                held_generation=link._held_generation(),
                held=held,
                cell=link._seen.cell,
            )
        )

    def receive(self) -> None:
        """Take the oldest message, or notice the end of the stream."""
        self.frontend.loop.enter()
        stream = self.stream
        assert stream is not None
        if not stream.down:
            stream.is_down_over = True
            self.end()
            return
        message = stream.down.popleft()
        try:
            if self.asked is not None:
                asked, self.asked = self.asked, None
                assert message.WhichOneof("message") == "welcome"
                self.outgoing = Outgoing(stream, self.frontend.num_submits, self.frontend.clock)
                self.link._welcome(self.outgoing, message.welcome, asked)  # type: ignore[arg-type]
            else:
                self.link._dispatch(message)
        except PagewireError as error:
            raise AssertionError(f"a frontend gives up its stream: {error.message}") from error

    def end(self) -> None:
        """The end of SchedulerLink.run's turn."""
        if self.stream is None:
            return
        self.stream.leave_down()
        self.stream = self.outgoing = self.asked = None
        if self.link.is_attached:
            self.lost_at = self.frontend.clock.now
        self.link._detach()

    def give_up(self) -> None:
        """Let others have what was detached for longer than the lease."""
        silence = self.frontend.clock.now - self.lost_at
        is_late = silence > self.link._settings.lease_seconds
        if self.stream is None and self.link.carried.detached and is_late:
            self.frontend.loop.enter()
            self.link._on_lost(self.link)


class Frontend:
    """A frontend process and its clients.

    Attributes:
        unread_until: Its clients read nothing before.
        num_submits: How often each request was submitted.
    """

    def __init__(
        self, number: int, life: int, cells: list[Any], clock: Clock, coverage: Coverage
    ) -> None:
        self.number = number
        self.frontend_id = bytes([number, life]) * 8
        self.clock = clock
        self.coverage = coverage
        self.loop = VirtualLoop(clock)
        self.loop.enter()
        self.journal = Journal()
        settings = LinkSettings(
            frontend_id=self.frontend_id,
            fingerprints={MODEL: TOKENIZER},
            silence_seconds=5.0,
            lease_seconds=5.0,
            cache_bytes_of=_cache_bytes_of,
        )
        addresses = [(Address(host="127.0.0.1", port=1000 + cell.number),) for cell in cells]
        self.pool = SchedulerPool(addresses, settings, self.journal, max_waiting=64)
        self.ends = [LinkEnd(self, link, cell) for link, cell in zip(self.pool, cells, strict=True)]
        self.clients: list[Client] = []
        self.unread_until = 0.0
        self.num_submits: Counter[bytes] = Counter()

    def open(self, client: Client) -> None:
        """As Engine.open after its checks."""
        self.loop.enter()
        self.journal.open(client.session.entry)
        try:
            self.pool.submit(client.session)
        except PagewireError as error:
            client.refuse(error)
            client.session.release()
            self.journal.close(client.session.entry)
            return
        self.clients.append(client)

    def close(self, client: Client) -> None:
        """As Engine.close."""
        self.loop.enter()
        if client.session.entry.state is not EntryState.CLOSED:
            client.session.release()
            self.pool.cancel_wait(client.session)
            self.journal.close(client.session.entry)
        self.clients.remove(client)

    def turn(self) -> None:
        """Run the loop's callbacks and write what waits in outboxes."""
        self.loop.drain()
        for end in self.ends:
            if end.outgoing is not None:
                end.outgoing.write()

    def read(self) -> None:
        """Let every client read what is ready; close those that have everything."""
        if self.clock.now < self.unread_until:
            return
        self.loop.enter()
        for client in list(self.clients):
            if client.read():
                self.close(client)

    def die(self) -> None:
        for end in self.ends:
            if end.stream is not None:
                end.stream.leave_down()
                end.stream = None
        self.clients = []
