"""What a peer claims about generations: it never ends a scheduler, cuts a stream of another peer,
or moves the generation where it cannot come back from."""

import asyncio
import time
from collections.abc import Awaitable
from pathlib import Path

import pytest
from contract.scheduler_peers import attached, eventually, frontend_of, running_scheduler
from contract.scripted_frontend import ScriptedFrontend
from contract.scripted_worker import ScriptedWorker, expected

from pagewire_shared.errors import PagewireError, PeerRefusedError, UnavailableError

DAY_MS = 86_400_000


@pytest.mark.parametrize("kind", ["largest", "signed", "days ahead"])
async def test_a_generation_that_cannot_be_is_refused(tmp_path: Path, kind: str) -> None:
    ahead = int(time.time() * 1000) + 2 * DAY_MS
    highest = {"largest": 2**64 - 2, "signed": 2**63, "days ahead": ahead}[kind]
    async with running_scheduler(tmp_path) as scheduler:
        before = scheduler.loop.generation.number
        worker = ScriptedWorker(scheduler.address, highest_generation=highest)
        frontend = ScriptedFrontend(scheduler.address, highest_generation=highest)
        for attach in (worker.run, lambda: _attach(frontend)):
            refused = await _refusal(attach())
            assert isinstance(refused, PeerRefusedError)
            assert refused.field == "highest_generation"
        assert scheduler.loop.generation.number == before
        async with frontend_of(scheduler) as frontend, attached(ScriptedWorker(scheduler.address)):
            await frontend.submit(1, [3], max_tokens=2)
            await frontend.until(lambda: (1, 0) in frontend.finished)


async def test_a_later_scheduler_of_the_cell_ends_nothing_here(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_scheduler(tmp_path) as scheduler, frontend_of(scheduler) as frontend:
        worker = ScriptedWorker(scheduler.address)
        async with attached(worker):
            await eventually(lambda: worker.welcome is not None)
            later = scheduler.loop.generation.number + 1
            for _ in range(3):
                peer = ScriptedWorker(scheduler.address, highest_generation=later)
                refused = await _refusal(peer.run())
                assert isinstance(refused, UnavailableError), refused
            peer = ScriptedFrontend(scheduler.address, highest_generation=later)
            refused = await _refusal(_attach(peer))
            assert isinstance(refused, UnavailableError), refused
            await frontend.submit(1, [3], max_tokens=4)
            await frontend.until(lambda: (1, 0) in frontend.finished)
            assert frontend.tokens[1, 0] == expected([3], 4)
    # Peers dial for ever: once is enough.
    said = [record for record in caplog.records if "another scheduler" in record.getMessage()]
    assert [record.levelname for record in said] == ["ERROR"]
    assert "--cell" in said[0].getMessage()


async def _attach(frontend: ScriptedFrontend) -> None:
    try:
        await frontend.attach()
    finally:
        await frontend.detach()


async def _refusal(attach: Awaitable[None]) -> PagewireError | None:
    """Return why an attach ended, or None when it lasts."""
    try:
        async with asyncio.timeout(5):
            await attach
    except (PagewireError, TimeoutError) as error:
        return error if isinstance(error, PagewireError) else None
    return None
