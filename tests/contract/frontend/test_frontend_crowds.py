"""More open streams than an outbox ever held, when their scheduler is lost: all of them go on, over
one connection, and none is refused for want of room."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from contract.frontend_peers import ScriptedScheduler, eventually, listening

from pagewire_frontend.scheduler.link import LinkSettings
from pagewire_frontend.scheduler.pool import SchedulerPool
from pagewire_frontend.session.journal import Journal, JournalEntry
from pagewire_frontend.session.session import Session
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as wire
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.kv.arrays import unpack_u32
from pagewire_shared.rpc.address import parse_address
from pagewire_shared.sampling.params import SamplingParams
from support.checkpoints.no_text import NoText

NUM_STREAMS = 9000
AT_A_TIME = 1000
SECONDS = 30.0
TOKENIZER = b"t" * 32
SERVED = wire.ServedModels(
    models=[
        wire.ServedModel(
            name="tiny", tokenizer_fingerprint=TOKENIZER, max_model_len=512, num_workers=1
        )
    ]
)


def open_session(journal, number):
    entry = JournalEntry(
        request_id=RequestId(number.to_bytes(16, "little")),
        model="tiny",
        prompt_token_ids=[1, 2, 3],
        params=SamplingParams(seed=1, max_tokens=9),
    )
    journal.open(entry)
    return Session(entry, NoText(), arrived_at=0.0, deadline=None)


@asynccontextmanager
async def attached_pool(ports, journal, *, lease_seconds=5.0):
    settings = LinkSettings(
        frontend_id=b"f" * 16,
        fingerprints={"tiny": TOKENIZER},
        silence_seconds=SECONDS,
        lease_seconds=lease_seconds,
    )
    addresses = [(parse_address(f"127.0.0.1:{port}", setting="--scheduler"),) for port in ports]
    pool = SchedulerPool(addresses, settings, journal, max_waiting=8)
    task = asyncio.create_task(pool.run())
    try:
        await eventually(lambda: all(link.serves("tiny") for link in pool), "attached")
        yield pool
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def take_submits(attach, submits, num):
    """Take so many submits, by request; answer none."""
    async with asyncio.timeout(SECONDS):
        while len(submits) < num:
            message = await attach.received.get()
            if message.WhichOneof("message") == "submit":
                submits[message.submit.request_id] = message.submit


async def begin(pool, attach, journal, num):
    """Open so many streams that have each shown a token; return the sessions by request."""
    sessions, submits = {}, {}
    for start in range(0, num, AT_A_TIME):
        for number in range(start, min(start + AT_A_TIME, num)):
            session = open_session(journal, number)
            pool.submit(session)
            sessions[session.entry.request_id] = session
        await take_submits(attach, submits, len(sessions))
    for submit in submits.values():
        attach.tokens(submit, 0, [7])
    await eventually(
        lambda: all(one.entry.choices[0].next_position == 1 for one in sessions.values()),
        "a token of every stream",
    )
    return sessions


async def test_a_restarted_scheduler_gets_every_stream_over_one_connection():
    journal = Journal()
    async with AsyncExitStack() as stack:
        first = ScriptedScheduler(SERVED, generation=1000)
        async with listening(first) as port:
            pool = await stack.enter_async_context(attached_pool([port], journal))
            sessions = await begin(pool, await first.attached(), journal, NUM_STREAMS)
        second = ScriptedScheduler(SERVED, generation=2000)
        await stack.enter_async_context(listening(second, port))
        attach = await second.attached()
        again = {}
        # Newcomers and aborts, meanwhile, break nothing, and do not come first.
        newcomers = [open_session(journal, NUM_STREAMS + number) for number in range(5)]
        for newcomer in newcomers:
            pool.submit(newcomer)
        *_, gone = sessions.values()
        pool.cancel_wait(gone)
        await take_submits(attach, again, NUM_STREAMS - 1 + len(newcomers))
        assert second.attaches.empty(), "it had to attach again"
        assert gone.entry.request_id not in again
        resubmits = [submit for submit in again.values() if submit.epoch]
        assert {submit.request_id for submit in resubmits} == again.keys() - {
            newcomer.entry.request_id for newcomer in newcomers
        }
        assert all(unpack_u32(submit.emitted[0].token_ids) == [7] for submit in resubmits)
        order = [submit.epoch for submit in again.values()]
        assert order == sorted(order, reverse=True), "newcomers come before streams that go on"
        assert not any(session.is_over for session in sessions.values())


@pytest.mark.long
async def test_a_second_cell_takes_every_stream_of_a_lost_one():
    journal = Journal()
    first, second = (ScriptedScheduler(SERVED, generation=1000) for _ in range(2))
    async with AsyncExitStack() as stack:
        async with listening(first) as port:
            spare = await stack.enter_async_context(listening(second))
            pool = await stack.enter_async_context(
                attached_pool([port, spare], journal, lease_seconds=0.0)
            )
            attach = await second.attached()
            # All go to the first: the second serves nothing yet.
            attach.send(served_models=wire.ServedModels())
            await eventually(lambda: sum(link.serves("tiny") for link in pool) == 1, "one serves")
            sessions = await begin(pool, await first.attached(), journal, NUM_STREAMS)
            attach.send(served_models=SERVED)
            await eventually(lambda: sum(link.serves("tiny") for link in pool) == 2, "both serve")
        again = {}
        await take_submits(attach, again, NUM_STREAMS)
        assert again.keys() == sessions.keys()
        assert Counter(submit.epoch for submit in again.values()) == {1: NUM_STREAMS}
        assert not any(session.is_over for session in sessions.values())
