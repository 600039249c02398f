"""The link to one scheduler: keeps its attach stream dialled, introduces this frontend, resumes
requests and reports the served models. Never looks into text or tokens."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagewire_frontend.metrics.model_load import ModelLoad
from pagewire_frontend.scheduler import convert as link_messages
from pagewire_frontend.scheduler.admin_convert import (
    Operation,
    admin_query_message,
    stacks_reply_message,
)
from pagewire_frontend.scheduler.attach_stream import AttachStream, dial
from pagewire_frontend.scheduler.convert import model_loads
from pagewire_frontend.scheduler.link_sessions import LinkSessions
from pagewire_frontend.scheduler.models_convert import OfferedModel, served_models
from pagewire_frontend.session.journal_records import HeldResources
from pagewire_frontend.session.session import Session
from pagewire_protos.common.v1 import audit_pb2
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as pb
from pagewire_shared.errors import PagewireError, PeerRefusedError, UnavailableError, WireError
from pagewire_shared.identity.seen_generations import SeenGenerations
from pagewire_shared.kv.arrays import unpack_u32
from pagewire_shared.pair.finder import PairMember, SchedulerFinder
from pagewire_shared.process.backoff import REDIAL_MAX_SECONDS, Backoff
from pagewire_shared.rpc.address import Address
from pagewire_shared.rpc.errors import from_detail

_logger = logging.getLogger(__name__)

REFUSED_RETRY_SECONDS = 2.0

JOINED_SUBMITS_PROTOCOL = 3
"""First version of the protocol with messages of several submits."""


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Settings that all links of a frontend share."""

    frontend_id: bytes
    fingerprints: Mapping[str, bytes]
    """Served name to tokenizer fingerprint."""
    silence_seconds: float
    """A scheduler that sends no message for this long counts as stuck."""
    lease_seconds: float
    """How long sessions of a broken stream wait for this scheduler rather than go to another."""
    cache_bytes_of: Callable[[str | None], int | None] = lambda tenant: None
    """Returns the bytes that a tenant may keep in the cache of each worker; None for no bound."""


class SchedulerLink:
    """The attach stream to one scheduler, re-dialled for ever."""

    def __init__(
        self,
        addresses: Sequence[Address],
        settings: LinkSettings,
        *,
        on_change: Callable[[], None],
        on_lost: Callable[["SchedulerLink"], None],
        holdings: Callable[["SchedulerLink"], HeldResources],
    ) -> None:
        """Create the scheduler link.

        Args:
            addresses: The scheduler of the cell, or the two of which one stands by.
            on_change: Called after an attach, a loss or new models.
            on_lost: Called when other schedulers may take the detached sessions.
            holdings: Answers audit queries.
        """
        self._finder = SchedulerFinder(addresses)
        self.served: dict[str, OfferedModel] = {}
        self.loads: dict[str, ModelLoad] = {}
        self.refusal: str | None = None
        self.carried = LinkSessions(self._send, self._send_each, settings.cache_bytes_of)
        self._settings = settings
        self._on_change = on_change
        self._on_lost = on_lost
        self._holdings = holdings
        # The held requests belong to one generation of a cell; the address may lead to another.
        self._seen = SeenGenerations()
        self._held: tuple[str, int] | None = None
        self._stream: AttachStream | None = None
        self._reason = ""
        self._queries: dict[int, asyncio.Future[Any]] = {}
        self._next_query = 0

    @property
    def address(self) -> Address:
        """The scheduler that was dialled last."""
        return self._finder.address

    def schedulers(self) -> list[PairMember]:
        """Return the schedulers of a pair; nothing for one that is alone."""
        return self._finder.members()

    @property
    def is_attached(self) -> bool:
        """Whether requests can be submitted now."""
        return self._stream is not None

    def serves(self, model: str) -> bool:
        """Whether a request for `model` would be worked on now."""
        return self.is_attached and model in self.served and self.served[model].num_workers > 0

    async def audit_cell(self, timeout_seconds: float) -> audit_pb2.AuditReport:
        """Ask the scheduler for an audit of its cell. Raises UnavailableError."""
        report: audit_pb2.AuditReport = await self._ask(
            lambda query_id: pb.AttachFrontendRequest(audit_query=pb.AuditQuery(query_id=query_id)),
            timeout_seconds,
        )
        return report

    async def reset_prefix_cache(self, model: str | None, timeout_seconds: float) -> int:
        """Make the scheduler drop the prefix cache of `model`, or of all; return the number of
        blocks. Raises UnavailableError."""
        num_blocks: int = await self._ask(
            lambda query_id: link_messages.reset_prefix_cache_message(query_id, model),
            timeout_seconds,
        )
        return num_blocks

    async def operate(
        self,
        query: Operation,
        timeout_seconds: float,
    ) -> pb.AdminAnswer:
        """Send an operator's query to the scheduler. Raises UnavailableError, and the error of its
        answer."""
        answer: pb.AdminAnswer = await self._ask(
            lambda query_id: admin_query_message(query_id, query), timeout_seconds
        )
        if answer.HasField("error"):
            raise from_detail(answer.error)
        return answer

    async def _ask(
        self, message: Callable[[int], pb.AttachFrontendRequest], timeout_seconds: float
    ) -> Any:
        self._next_query += 1
        query_id = self._next_query
        future = asyncio.get_running_loop().create_future()
        self._queries[query_id] = future
        try:
            self._send(message(query_id))
            return await asyncio.wait_for(future, timeout_seconds)
        except TimeoutError as error:
            raise UnavailableError(f"the scheduler at {self.address} does not answer") from error
        finally:
            del self._queries[query_id]

    def _answer(self, query_id: int, answer: object) -> None:
        future = self._queries.get(query_id)
        if future is not None and not future.done():
            future.set_result(answer)

    async def run(self) -> None:
        """Attach, and attach again after every loss, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._finder.run())
            await self._keep_attached()

    async def _keep_attached(self) -> None:
        backoff = Backoff(max_seconds=REDIAL_MAX_SECONDS)
        lost_at = time.monotonic()
        while True:
            address = await self._finder.next_address()
            try:
                await self._finder.follow(self._attach_once(address, backoff))
            except PagewireError as error:
                self._note(error)
            if self.is_attached:
                lost_at = time.monotonic()
            self._detach()
            if self.carried.detached and time.monotonic() - lost_at > self._settings.lease_seconds:
                self._on_lost(self)
            wait = backoff.next_seconds()
            await self._finder.wait(REFUSED_RETRY_SECONDS if self.refusal else wait)

    async def _attach_once(self, address: Address, backoff: Backoff) -> None:
        async with dial(address, silence_seconds=self._settings.silence_seconds) as stream:
            asked, held = self.carried.introduce()
            hello = link_messages.hello_message(
                frontend_id=self._settings.frontend_id,
                highest_generation=self._seen.highest,
                fingerprints=self._settings.fingerprints.items(),
                held_generation=self._held_generation(),
                held=held,
                cell=self._seen.cell,
            )
            self._welcome(stream, await stream.introduce(hello), asked)
            backoff.reset()
            await stream.exchange(self._dispatch)

    def _welcome(
        self, stream: AttachStream, welcome: pb.Welcome, asked: Mapping[int, Session]
    ) -> None:
        self._seen.meet(welcome.cell, welcome.generation)
        met = (welcome.cell, welcome.generation)
        resumed = set(unpack_u32(welcome.resumed_handles)) if met == self._held else set()
        self._held = met
        self.refusal = None
        self._reason = ""
        self._stream = stream
        _logger.info(
            "attached to the scheduler at %s, generation %d; of %d open requests it resumes %d",
            self.address,
            welcome.generation,
            len(asked),
            len(resumed),
        )
        self.carried.is_joining = welcome.protocol >= JOINED_SUBMITS_PROTOCOL
        self.carried.resubmit_open(asked, resumed)
        self._set_served(welcome.served_models)

    def _held_generation(self) -> int | None:
        """Return the generation that has the held requests, if it is of the cell that the hello
        names."""
        cell, generation = self._held or ("", None)
        return generation if cell == self._seen.cell else None

    def _detach(self) -> None:
        self._stream = None
        self.loads = {}
        was_served, self.served = self.served, {}
        self.carried.detach_all()
        for future in self._queries.values():
            if not future.done():
                future.set_exception(UnavailableError(f"lost the scheduler at {self.address}"))
        if was_served:
            self._on_change()

    def _dispatch(self, message: pb.AttachFrontendResponse) -> None:
        kind = message.WhichOneof("message")
        if kind == "tokens":
            self.carried.on_tokens(message.tokens)
        elif kind == "begun":
            self.carried.on_begun(message.begun)
        elif kind == "timelines":
            self.carried.on_timelines(message.timelines)
        elif kind == "vectors":
            self.carried.on_vectors(message.vectors)
        elif kind == "prompt_logprobs":
            self.carried.on_prompt_logprobs(message.prompt_logprobs)
        elif kind == "finished":
            self.carried.on_finished(message.finished)
        elif kind == "rejected":
            self.carried.on_rejected(message.rejected)
        elif kind == "failing":
            self.carried.on_failing(message.failing)
        elif kind == "served_models":
            self._set_served(message.served_models)
        elif kind == "cell_metrics":
            self.loads = model_loads(message.cell_metrics)
        elif kind == "audit_query":
            self._send(
                link_messages.audit_reply_message(
                    message.audit_query.query_id, self._settings.frontend_id, self._holdings(self)
                )
            )
        elif kind == "audit_answer":
            self._answer(message.audit_answer.query_id, message.audit_answer.report)
        elif kind == "prefix_cache_reset":
            answer = message.prefix_cache_reset
            self._answer(answer.query_id, answer.num_blocks)
        elif kind == "stacks_query":
            name = self._settings.frontend_id.hex()
            self._send(stacks_reply_message(message.stacks_query.query_id, name))
        elif kind == "admin_answer":
            self._answer(message.admin_answer.query_id, message.admin_answer)
        elif kind == "welcome":
            raise WireError("a second welcome")

    def _set_served(self, message: pb.ServedModels) -> None:
        served = served_models(message)
        for name, fingerprint in self._settings.fingerprints.items():
            model = served.get(name)
            if model is not None and model.tokenizer_fingerprint != fingerprint:
                _logger.error(
                    "the workers' tokenizer of %s is not this frontend's; not using them", name
                )
                del served[name]
        self.served = served
        self._on_change()

    def _send(self, message: pb.AttachFrontendRequest) -> None:
        # Without a stream the message is dropped; the next hello lists the held requests.
        if self._stream is not None:
            self._stream.send(message)

    def _send_each(self, messages: Iterator[pb.AttachFrontendRequest]) -> None:
        if self._stream is not None:
            self._stream.send_each(messages)

    def _note(self, error: PagewireError) -> None:
        """Log the reason why there is no stream, once per reason."""
        is_refusal = isinstance(error, PeerRefusedError)
        self.refusal = error.message if is_refusal else None
        if error.message != self._reason or self.is_attached:
            level = logging.ERROR if is_refusal else logging.WARNING
            verb = "refuses" if is_refusal else "is not attached"
            _logger.log(level, "the scheduler at %s %s: %s", self.address, verb, error.message)
        self._reason = error.message
