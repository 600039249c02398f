"""A crowd of open requests over real sockets: frontends without clients, workers that sample a
formula, and the scheduler as a process of its own that can be killed."""

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from contract.scripted_worker import TOKENIZER, ScriptedWorker, expected

from pagewire_frontend.scheduler.link import LinkSettings
from pagewire_frontend.scheduler.pool import SchedulerPool
from pagewire_frontend.session.journal import Journal, JournalEntry
from pagewire_frontend.session.session import Session
from pagewire_shared.errors import PagewireError
from pagewire_shared.identity.ids import RequestId, mint_id
from pagewire_shared.rpc.address import parse_address
from pagewire_shared.sampling.params import SamplingParams
from support.checkpoints.no_text import NoText

SECONDS = 120.0
PROMPT_TOKENS = 32


class WideWorker(ScriptedWorker):
    """Runs many sequences at once, and dials again for ever."""

    def hello(self):
        hello = super().hello()
        hello.capacity.max_num_seqs = 128
        hello.capacity.max_num_batched_tokens = 2048
        hello.capacity.num_blocks = 1 << 14
        return hello

    async def run_for_ever(self):
        self.gate.set()
        while True:
            with suppress(PagewireError):
                await self.run()
            while not self.received.empty():
                self.received.get_nowait()
            await asyncio.sleep(0.05)


class CrowdFrontend:
    """The links and sessions of one frontend; nobody reads."""

    def __init__(self, addresses):
        self.journal = Journal()
        settings = LinkSettings(
            frontend_id=mint_id(),
            fingerprints={"tiny": TOKENIZER},
            silence_seconds=SECONDS,
            lease_seconds=0.2,
        )
        dialled = [(parse_address(address, setting="--scheduler"),) for address in addresses]
        self.pool = SchedulerPool(dialled, settings, self.journal, max_waiting=8)
        self.sessions = []
        self.num_attaches = 0
        self.newest = 0.0
        """When a token came last."""

    def open(self, num, max_tokens):
        """Open so many requests, each with a prompt of its own."""
        for number in range(num):
            prompt = [1 + number % 900] * PROMPT_TOKENS
            entry = JournalEntry(
                request_id=RequestId(mint_id()),
                model="tiny",
                prompt_token_ids=prompt,
                params=SamplingParams(seed=1, max_tokens=max_tokens, temperature=0),
            )
            self.journal.open(entry)
            session = Session(entry, NoText(), arrived_at=time.monotonic(), deadline=None)
            self.sessions.append(session)
            self.pool.submit(session)

    @property
    def num_begun(self):
        return sum(session.entry.has_output for session in self.sessions)

    @property
    def is_submitted(self):
        return all(session.entry.epoch >= 0 for session in self.sessions)

    @property
    def num_tokens(self):
        return sum(session.entry.choices[0].next_position for session in self.sessions)

    @property
    def is_done(self):
        return all(session.is_over for session in self.sessions)

    def check(self):
        """Every request got exactly what the formula says."""
        truth = {}
        for session in self.sessions:
            entry = session.entry
            assert entry.is_finished, "a request failed"
            prompt = entry.prompt_token_ids
            if prompt[0] not in truth:
                truth[prompt[0]] = expected(prompt, entry.params.max_tokens)
            assert entry.choices[0].token_ids == truth[prompt[0]]


@asynccontextmanager
async def crowd(addresses, *, num_frontends, num_workers):
    """Frontends that know all schedulers, and workers of each."""
    async with AsyncExitStack() as stack:
        frontends = [CrowdFrontend(addresses) for _ in range(num_frontends)]
        workers = [WideWorker(one) for one in addresses for _ in range(num_workers)]
        tasks = [asyncio.create_task(worker.run_for_ever()) for worker in workers]
        tasks += [asyncio.create_task(frontend.pool.run()) for frontend in frontends]
        stack.push_async_callback(_end, tasks)
        for frontend in frontends:
            await until(lambda one=frontend: all(link.serves("tiny") for link in one.pool))
        yield frontends


async def _end(tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def until(is_reached, seconds=SECONDS):
    """Wait until something holds."""
    async with asyncio.timeout(seconds):
        while not is_reached():
            await asyncio.sleep(0.02)
