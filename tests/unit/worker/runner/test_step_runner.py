"""Plans through the model thread, with a device that takes its time."""

import asyncio

import pytest

from pagewire_worker.runner.model_thread import ModelThread
from pagewire_worker.runner.readback import DeviceLostError
from pagewire_worker.runner.step_runner import StepRunner
from support.cells.worker_driver import PROMPT, request
from support.kernels.held_readback import HeldReadback


class Attach:
    """What a runner tells, and the plans for it."""

    def __init__(self, driver, thread):
        self.driver = driver
        self.told: asyncio.Queue = asyncio.Queue()
        loop = asyncio.get_running_loop()
        tell = self.told.put_nowait
        self.runner = StepRunner(
            model_runner=driver.model_runner,
            thread=thread,
            loop=loop,
            on_result=tell,
            on_failure=tell,
        )

    def run(self, rows, **fields):
        self.runner.run(self.driver.plan(rows, **fields))

    def start(self):
        self.run([(0, 0, len(PROMPT), 1, 0)], new_sequences=[request(0)])

    def decode(self, place):
        self.run([(0, len(PROMPT) + place, 1, 1, 0)])

    async def next(self):
        return await asyncio.wait_for(self.told.get(), 20)


@pytest.fixture
async def thread():
    one = ModelThread(asyncio.get_running_loop())
    one.start()
    yield one
    one.stop(20)


@pytest.fixture
def readback():
    return HeldReadback()


@pytest.fixture
def held(driver, readback):
    one = driver("llama", steps_in_flight=2)
    one.model_runner._readback = readback
    return one


async def launched(readback, count):
    async with asyncio.timeout(20):
        while len(readback.events) < count:
            await asyncio.sleep(0.005)


async def test_the_next_step_is_launched_before_the_one_before_is_over(held, readback, thread):
    readback.is_free = False
    attach = Attach(held, thread)
    attach.start()
    attach.decode(0)
    await launched(readback, 2)
    # Steps end in their order, but whoever waits may see them late.
    readback.events[1].come()
    await asyncio.sleep(0.05)
    assert attach.told.empty()
    readback.events[0].come()
    assert [(await attach.next()).result.step_id for _ in range(2)] == [1, 2]


async def test_a_failed_plan_is_answered_behind_the_step_before_it(held, readback, thread):
    readback.is_free = False
    attach = Attach(held, thread)
    attach.start()
    attach.decode(100)
    await launched(readback, 1)
    await asyncio.sleep(0.05)
    assert attach.told.empty()
    readback.events[0].come()
    first, second = await attach.next(), await attach.next()
    assert (first.result.failure, second.result.step_id) == (None, 2)
    assert second.result.failure is not None
    assert second.result.step_time_us >= second.result.model_time_us


async def test_a_lost_device_is_told_and_so_is_every_step_behind_it(held, readback, thread):
    readback.is_free = False
    attach = Attach(held, thread)
    attach.start()
    attach.decode(0)
    await launched(readback, 2)
    for event in readback.events:
        event.come(RuntimeError("unspecified launch failure"))
    assert isinstance(await attach.next(), DeviceLostError)


async def test_nothing_is_told_of_an_attach_that_is_over(driver, held, readback, thread):
    (expected,) = driver("llama").generate([PROMPT], max_tokens=2)
    readback.is_free = False
    attach = Attach(held, thread)
    attach.start()
    await launched(readback, 1)
    attach.runner.close()
    attach.decode(0)
    readback.events[0].come()
    await thread.submit(held.model_runner.drop_slots)
    readback.is_free = True
    again = Attach(held, thread)
    again.start()
    again.decode(0)
    tokens = [int((await again.next()).result.token_ids[0]) for _ in range(2)]
    assert tokens == expected
    assert attach.told.empty()


async def test_steps_that_are_over_at_once_need_no_thread(driver, thread):
    (expected,) = driver("llama").generate([PROMPT], max_tokens=3)
    attach = Attach(driver("llama", steps_in_flight=2), thread)
    attach.start()
    attach.decode(0)
    attach.decode(1)
    assert [int((await attach.next()).result.token_ids[0]) for _ in range(3)] == expected
    assert attach.runner._waiter is None
