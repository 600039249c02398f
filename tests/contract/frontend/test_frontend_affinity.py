"""Which of several cells gets a request: the one that has computed most of its prompt before,
unless it is much busier than another."""

from contextlib import AsyncExitStack

from contract.frontend.test_frontend_crowds import SERVED, attached_pool
from contract.frontend_peers import ScriptedScheduler, eventually, listening

from pagewire_frontend.session.journal import Journal, JournalEntry
from pagewire_frontend.session.session import Session
from pagewire_shared.identity.ids import RequestId, mint_id
from pagewire_shared.sampling.params import SamplingParams
from support.checkpoints.no_text import NoText

SYSTEM = list(range(200))


def open_session(journal, pool, prompt, **fields):
    entry = JournalEntry(
        request_id=RequestId(mint_id()),
        model="tiny",
        prompt_token_ids=prompt,
        params=SamplingParams(seed=1, max_tokens=1),
        **fields,
    )
    journal.open(entry)
    session = Session(entry, NoText(), arrived_at=0.0, deadline=None)
    pool.submit(session)
    return session


async def test_a_conversation_stays_with_its_cell():
    journal = Journal()
    schedulers = [ScriptedScheduler(SERVED) for _ in range(2)]
    async with AsyncExitStack() as stack:
        ports = [await stack.enter_async_context(listening(one)) for one in schedulers]
        pool = await stack.enter_async_context(attached_pool(ports, journal))
        attaches = [await one.attached() for one in schedulers]
        links = list(pool)

        async def turn(prompts, **fields):
            """Ask all at once, then answer all; return which cell got which."""
            sessions = [open_session(journal, pool, prompt, **fields) for prompt in prompts]
            where = [[link.carried for link in links].index(one.carrier) for one in sessions]
            for number in where:
                submit = await attaches[number].next("submit")
                attaches[number].tokens(submit, 0, [7])
                attaches[number].finish(submit, 1)
            await eventually(lambda: all(one.is_over for one in sessions), "answered")
            return where

        first, second = [1, *SYSTEM], [2, *SYSTEM]
        assert await turn([first, second]) == [0, 1]
        for _ in range(3):
            first, second = [*first, *range(50)], [*second, *range(60)]
            assert await turn([second, first]) == [1, 0]
        # Other salts, and prompts that only look alike, are no prefixes.
        assert await turn([second], cache_salt=b"s") == [0]
        assert await turn([[3, *SYSTEM]]) == [0]
        # A prefix that all have in common is spread over the cells.
        everybody = await turn([[*second, number] for number in range(60)])
        assert everybody.count(0) >= 15
        assert everybody.count(1) >= 30
