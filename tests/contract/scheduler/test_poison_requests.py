"""A request at which the core of every scheduler fails: it ends after two of them, and all other
streams go on."""

import asyncio

import pytest
from contract.crowds import PROMPT_TOKENS, SECONDS, crowd, until

from pagewire_shared.errors import InternalError
from support.processes.processes import free_port
from support.processes.role_processes import Place, RoleProcess

POISON = 6
"""What the prompt of the poison begins with."""

PROGRAM = f"""
import runpy
import pagewire_scheduler.core.MODULE as module
honest = module.NAME
def NAME(subject, *rest):
    submission = getattr(getattr(subject, "request", subject), "submission", subject)
    if submission.prompt_token_ids[0] == {POISON}:
        raise ZeroDivisionError("poison")
    return honest(subject, *rest)
module.NAME = NAME
runpy.run_module("pagewire_scheduler", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("module", "name"),
    [
        pytest.param("scheduler_core", "create_request", marks=pytest.mark.long),
        ("results.apply", "_emit_timeline"),
    ],
)
async def test_a_poison_request_ends_after_two_schedulers(module, name):
    address = f"127.0.0.1:{free_port()}"
    program = ("-P", "-c", PROGRAM.replace("MODULE", module).replace("NAME", name))
    place = Place(address, program=program)
    num_deaths = 0
    with RoleProcess("scheduler", "scheduler", place, ["--listen", address]) as process:

        async def supervise():
            nonlocal num_deaths
            while True:
                if process.process.poll() is not None:
                    num_deaths += 1
                    process.kill()
                    process.start()
                await asyncio.sleep(0.02)

        await asyncio.to_thread(process.wait_ready, SECONDS)
        task = asyncio.create_task(supervise())
        async with crowd([address], num_frontends=2, num_workers=1) as frontends:
            for frontend in frontends:
                frontend.open(10, 40)
            await until(lambda: all(frontend.is_done for frontend in frontends))
            task.cancel()
            for frontend in frontends:
                poison = frontend.sessions.pop(POISON - 1)
                assert poison.entry.prompt_token_ids == [POISON] * PROMPT_TOKENS
                with pytest.raises(InternalError, match="failed 2 times"):
                    poison.take()
                frontend.check()
    # Each frontend has one.
    assert 2 <= num_deaths <= 4
