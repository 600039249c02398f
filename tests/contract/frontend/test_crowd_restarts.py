"""A crowd of open requests whose scheduler is killed: every frontend attaches once, and every
stream is whole."""

import asyncio
import logging
import time

import pytest
from contract.crowds import SECONDS, crowd, until

from support.processes.processes import free_port
from support.processes.role_processes import Place, RoleProcess

NUM_TOKENS = 12


def scheduler(name):
    address = f"127.0.0.1:{free_port()}"
    flags = ["--listen", address, "--max-num-waiting", "20000"]
    return RoleProcess(name, "scheduler", Place(address), flags)


def attaches(caplog):
    return [one for one in caplog.records if one.getMessage().startswith("attached to")]


@pytest.mark.parametrize(
    "num_requests", [300, pytest.param(12_000, marks=[pytest.mark.long, pytest.mark.timeout(300)])]
)
async def test_a_killed_scheduler_gets_the_whole_crowd_back(num_requests, caplog):
    caplog.set_level(logging.INFO, "pagewire_frontend.scheduler.link")
    with scheduler("scheduler") as process:
        await asyncio.to_thread(process.wait_ready, SECONDS)
        async with crowd([process.place.address], num_frontends=2, num_workers=2) as frontends:
            for frontend in frontends:
                frontend.open(num_requests // 2, NUM_TOKENS)
            await until(lambda: all(one.is_submitted and one.num_begun >= 20 for one in frontends))
            process.kill()
            process.start()
            before = [frontend.num_tokens for frontend in frontends]
            assert not any(frontend.is_done for frontend in frontends)
            await asyncio.to_thread(process.wait_ready, SECONDS)
            ready = time.monotonic()
            for frontend, num in zip(frontends, before, strict=True):
                await until(lambda one=frontend, num=num: one.num_tokens > num)
            print(f"tokens again {time.monotonic() - ready:.2f} s after the scheduler was ready")
            await until(lambda: all(frontend.is_done for frontend in frontends))
            print(f"all ended {time.monotonic() - ready:.2f} s after the scheduler was ready")
            for frontend in frontends:
                frontend.check()
    assert len(attaches(caplog)) == 2 * 2, "a frontend attached again without need"


async def test_a_second_cell_takes_over_the_crowd_of_a_lost_one(caplog):
    with scheduler("first") as first, scheduler("second") as second:
        for process in (first, second):
            await asyncio.to_thread(process.wait_ready, SECONDS)
        addresses = [first.place.address, second.place.address]
        async with crowd(addresses, num_frontends=1, num_workers=1) as [frontend]:
            frontend.open(600, NUM_TOKENS)
            on_first = [one for link in [*frontend.pool][:1] for one in link.carried.detached]
            assert len(on_first) >= 300
            await until(lambda: frontend.num_begun >= 200)
            first.kill()
            await until(lambda: frontend.is_done)
            frontend.check()
