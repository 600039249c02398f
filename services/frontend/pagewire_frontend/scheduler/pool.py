"""All schedulers of this frontend: routes a request to a scheduler that serves its model, and keeps
requests that none serves at the moment. Owns the links; never looks into tokens."""

import asyncio
import hashlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from pagewire_frontend.metrics.model_load import ModelLoad, total
from pagewire_frontend.scheduler.link import LinkSettings, SchedulerLink
from pagewire_frontend.session.journal import Journal
from pagewire_frontend.session.journal_records import Finding, HeldResources
from pagewire_frontend.session.prompt_blocks import BlockNaming
from pagewire_frontend.session.session import Session
from pagewire_shared.adapters.model_shapes import ModelShapes
from pagewire_shared.errors import OverloadedError, UnavailableError
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.rpc.address import Address

MAX_PREFIXES: Final = 65_536
"""Most prefixes that are remembered; the least recently used are forgotten."""

LENGTHS: Final = tuple(32 << level for level in range(9))
"""Tokens of the prefixes that are remembered: 32 to 8,192."""


class CellAffinity:
    """Maps prefixes to cells. A cell is a number, and a set of cells is an integer of bits."""

    def __init__(self) -> None:
        self._cells: OrderedDict[int, int] = OrderedDict()

    def find(self, prefixes: Sequence[int], candidates: int) -> int:
        """Return the `candidates` that have seen the longest prefix, or 0; both as bits."""
        for prefix in reversed(prefixes):
            found = self._cells.get(prefix, 0) & candidates
            if found:
                return found
        return 0

    def note(self, prefixes: Sequence[int], cell: int) -> None:
        """Note that a cell computes these prefixes."""
        for prefix in prefixes:
            self._cells[prefix] = self._cells.get(prefix, 0) | 1 << cell
            self._cells.move_to_end(prefix)
        while len(self._cells) > MAX_PREFIXES:
            self._cells.popitem(last=False)


def prefixes_of(prompt: Sequence[int], *names: object) -> list[int]:
    """Return a hash per prefix of LENGTHS tokens, the shortest first. Prompts with different
    `names` share no prefix."""
    return [hash((*names, *prompt[:length])) for length in LENGTHS if length <= len(prompt)]


# A cell with the beginning of a prompt may have this many more requests than the least busy.
_BUSIER_FACTOR = 1.25
_BUSIER_REQUESTS = 8


class SchedulerPool:
    """The attach streams, as one place to submit to."""

    def __init__(
        self,
        addresses: Sequence[Sequence[Address]],
        settings: LinkSettings,
        journal: Journal,
        *,
        max_waiting: int,
    ) -> None:
        """Create the scheduler pool.

        Args:
            addresses: One item per cell: its scheduler, or the two of which one stands by.
            max_waiting: Requests that may wait here for a worker of their model.
        """
        self.frontend_id = settings.frontend_id
        self._journal = journal
        self._max_waiting = max_waiting
        self._waiting: dict[RequestId, Session] = {}
        self._context_lengths: dict[str, int] = {}
        self._changed = asyncio.Condition()
        self._watchers: Counter[str] = Counter()
        self._affinity = CellAffinity()
        self._notices: set[asyncio.Task[None]] = set()
        self._links = [
            SchedulerLink(
                schedulers,
                settings,
                on_change=self._on_change,
                on_lost=self._on_lost,
                holdings=self._holdings,
            )
            for schedulers in addresses
        ]

    def __iter__(self) -> Iterator[SchedulerLink]:
        return iter(self._links)

    async def run(self) -> None:
        """Keep every link attached until cancelled."""
        async with asyncio.TaskGroup() as group:
            for link in self._links:
                group.create_task(link.run())

    def is_served(self, model: str) -> bool:
        """Whether a request for `model` would be worked on now."""
        return any(link.serves(model) for link in self._links)

    def num_workers(self, model: str) -> int:
        """Return how many workers of all cells serve `model` now."""
        served = (link.served.get(model) for link in self._links if link.is_attached)
        return sum(one.num_workers for one in served if one)

    def why_not_served(self) -> str:
        """Return one sentence on why requests wait."""
        refusals = [link.refusal for link in self._links if link.refusal]
        if refusals:
            return f"a scheduler refuses this frontend: {refusals[0]}"
        if not any(link.is_attached for link in self._links):
            return "no scheduler is attached"
        return "no worker serves a model of this frontend"

    def known_context_length(self, model: str) -> int | None:
        """Return the longest sequence that workers of `model` take, now or when last attached; else
        None."""
        return self._context_lengths.get(model)

    def known_embedding_size(self, model: str) -> int | None:
        """Return the length of the vectors of `model`; None without a worker or without vectors."""
        served = (link.served.get(model) for link in self._links)
        return next((one.embedding_size for one in served if one and one.embedding_size), None)

    def known_naming(self, model: str) -> BlockNaming | None:
        """Return the block naming of most workers of `model`; None while no worker serves it."""
        served = (link.served.get(model) for link in self._links)
        return next((one.namings[0] for one in served if one and one.namings), None)

    def known_numerics(self, model: str) -> bytes:
        """Return a digest of what decides the bits of the outputs of `model`; empty where another
        run of a request may give others, and without a worker."""
        served = [one for link in self._links if (one := link.served.get(model)) and one.namings]
        ways = {
            one.namings[0].model_fingerprint + one.namings[0].layout_fingerprint for one in served
        }
        if len(ways) != 1 or not all(one.is_exact for one in served):
            return b""
        return hashlib.sha256(ways.pop()).digest()

    def known_rank(self, model: str) -> int | None:
        """Return the largest rank of an adapter that all cells with workers of `model` take.

        It is 0 where none takes adapters, and None while no worker serves it.
        """
        served = [one for link in self._links if (one := link.served.get(model)) is not None]
        ranks = [one.max_adapter_rank for one in served if one.max_adapter_rank]
        return min(ranks, default=0) if served else None

    def known_shapes(self, model: str) -> tuple[ModelShapes, ...]:
        """Return what an adapter has to fit on the workers of `model`; nothing if none says."""
        served = (link.served.get(model) for link in self._links)
        shapes = (shape for one in served if one is not None for shape in one.adapter_shapes)
        # Equal ones are the same object: this is called for each of many adapters.
        return tuple({id(shape): shape for shape in shapes}.values())

    def num_adapter_slots(self) -> int:
        """Return the adapter slots of a worker, the fewest of those that have any; 0 for none."""
        served = (one for link in self._links for one in link.served.values())
        return min((one.max_adapters for one in served if one.max_adapters), default=0)

    def load_of(self, model: str) -> ModelLoad:
        """Return the load of `model` in all cells; requests that wait here count as well."""
        detached = (session for link in self._links for session in link.carried.detached)
        waiting = (*self._waiting.values(), *detached)
        num_here = sum(len(one.entry.choices) for one in waiting if one.entry.model == model)
        # A request that waits for a worker has no session yet, and counts as one sequence.
        here = ModelLoad(num_waiting_for_worker=num_here + self._watchers[model])
        reported = (link.loads[model] for link in self._links if model in link.loads)
        return total((here, *reported))

    async def wait_served(self, model: str, timeout_seconds: float) -> None:
        """Wait until `model` is served. Raises UnavailableError or OverloadedError."""
        if self.is_served(model):
            return
        if self._watchers.total() + len(self._waiting) >= self._max_waiting:
            raise OverloadedError("too many requests wait for a worker")
        self._watchers[model] += 1
        try:
            async with asyncio.timeout(timeout_seconds), self._changed:
                await self._changed.wait_for(lambda: self.is_served(model))
        except TimeoutError:
            raise UnavailableError(f"{model} is not served: {self.why_not_served()}") from None
        finally:
            self._watchers[model] -= 1

    async def wait_until(self, is_reached: Callable[[], bool]) -> None:
        """Wait for a state that attaches, losses and changes of served models can bring about."""
        async with self._changed:
            await self._changed.wait_for(is_reached)

    def submit(self, session: Session) -> None:
        """Give a request to a scheduler that serves its model, or keep it without one. Raises
        OverloadedError."""
        link = self._choose(session)
        if link is not None:
            link.carried.submit(session)
        else:
            self._waiting[session.entry.request_id] = session

    def _choose(self, session: Session) -> SchedulerLink | None:
        """Return the scheduler for a request, of those that serve its model. Prefers the one that
        has had most of the prompt, unless it has many more requests than another; else the one with
        the fewest."""
        entry = session.entry
        loads = {
            cell: len(link.carried)
            for cell, link in enumerate(self._links)
            if link.serves(entry.model)
        }
        if len(loads) < 2:
            return next((self._links[cell] for cell in loads), None)
        most = _BUSIER_FACTOR * min(loads.values()) + _BUSIER_REQUESTS
        candidates = sum(1 << cell for cell, load in loads.items() if load <= most)
        adapter = entry.adapter.adapter_id.hex() if entry.adapter is not None else ""
        prefixes = prefixes_of(
            entry.prompt_token_ids, entry.model + adapter, entry.tenant, entry.cache_salt
        )
        known = self._affinity.find(prefixes, candidates)
        cell = min(loads, key=lambda one: (not known >> one & 1, loads[one]))
        self._affinity.note(prefixes, cell)
        return self._links[cell]

    def cancel_wait(self, session: Session) -> None:
        """Free the resources of a request, here and at its scheduler."""
        self._waiting.pop(session.entry.request_id, None)
        if session.carrier is None:
            return
        if session.is_over:
            session.carrier.forget(session)
        else:
            session.carrier.drop(session)

    def _on_change(self) -> None:
        for link in self._links:
            for model in link.served.values():
                self._context_lengths[model.name] = model.max_model_len
        for session in list(self._waiting.values()):
            if self.is_served(session.entry.model):
                del self._waiting[session.entry.request_id]
                self._place(session)
        notice = asyncio.ensure_future(self._notify())
        self._notices.add(notice)
        notice.add_done_callback(self._notices.discard)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _on_lost(self, link: SchedulerLink) -> None:
        for session in link.carried.detached:
            if self.is_served(session.entry.model):
                link.carried.release(session)
                self._place(session)

    def _place(self, session: Session) -> None:
        """Give a request that was accepted before to a scheduler that serves its model. It cannot
        be refused any more: it waits there until it is written."""
        if session.is_over:
            return  # its deadline has passed, and its client has not left yet
        link = self._choose(session)
        assert link is not None, "who is placed is served"
        link.carried.resume(session)

    def _holdings(self, link: SchedulerLink) -> HeldResources:
        findings = tuple(
            Finding("leaked_handle", f"handle {handle} names a request that is over")
            for handle, session in link.carried.handles.items()
            if session.is_over or session.entry.handle != handle
        )
        return HeldResources(
            len(self._journal), len(link.carried.handles), findings, self._journal.num_resumed
        )
