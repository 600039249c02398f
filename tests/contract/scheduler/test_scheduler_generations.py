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
        stranger = ScriptedFrontend(scheduler.address, highest_generation=highest)
        for attach in (worker.run, lambda: _attach(stranger)):
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


async def test_what_was_seen_of_another_cell_moves_nothing(tmp_path: Path) -> None:
    async with running_scheduler(tmp_path, cell="blue") as scheduler:
        before = scheduler.loop.generation.number
        ahead = before + 2 * DAY_MS
        worker = ScriptedWorker(scheduler.address, highest_generation=ahead, cell="green")
        frontend = ScriptedFrontend(
            scheduler.address, highest_generation=ahead, held_generation=before, cell="green"
        )
        async with attached(worker):
            await frontend.attach()
            await frontend.submit(1, [3], max_tokens=2)
            await frontend.until(lambda: (1, 0) in frontend.finished)
            assert frontend.welcome is not None
            assert worker.welcome is not None
            for welcome in (frontend.welcome, worker.welcome):
                assert (welcome.cell, welcome.generation) == ("blue", before)
            await frontend.detach()


async def test_a_clock_set_back_locks_nobody_out(tmp_path: Path) -> None:
    """A restarted worker comes before one that remembers what the clock was."""
    async with running_scheduler(tmp_path) as scheduler, frontend_of(scheduler) as frontend:
        first = ScriptedWorker(scheduler.address, model="one")
        async with attached(first):
            await eventually(lambda: first.welcome is not None)
            assert first.welcome is not None
            first_generation = first.welcome.generation
            remembered = scheduler.loop.generation.number + 3_600_000
            second = ScriptedWorker(
                scheduler.address, model="two", cell="default", highest_generation=remembered
            )
            async with attached(second):
                for handle, model in enumerate(["one", "two"]):
                    await frontend.submit(handle, [3], max_tokens=6, model=model)
                    await frontend.until(lambda handle=handle: (handle, 0) in frontend.finished)
                    assert frontend.tokens[handle, 0] == expected([3], 6)
            assert {plan.generation for plan in first.plans} == {first_generation}
            assert {plan.generation for plan in second.plans} == {remembered + 1}


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
