"""Work that is done only while its client is there."""

import asyncio

import pytest

from pagewire_frontend.http.server.connection import while_connected
from pagewire_frontend.http.server.errors import ClientGoneError


class Client:
    """The `receive` side of a request."""

    def __init__(self):
        self.has_left = asyncio.Event()

    async def receive(self):
        await self.has_left.wait()
        return {"type": "http.disconnect"}


async def turns(count):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_work_of_a_client_that_stays_is_done():
    async def work():
        await turns(3)
        return 7

    client = Client()
    assert await while_connected(client, work()) == 7
    # What watched it is gone, too.
    client.has_left.set()
    await turns(5)


async def test_work_of_a_client_that_leaves_is_cancelled():
    client, ends = Client(), []

    async def work():
        try:
            await asyncio.sleep(60)
        finally:
            ends.append("cleaned up")

    asyncio.get_running_loop().call_later(0.01, client.has_left.set)
    with pytest.raises(ClientGoneError):
        await while_connected(client, work())
    assert ends == ["cleaned up"]
    assert asyncio.current_task().cancelling() == 0
    await turns(5)


@pytest.mark.parametrize("num_turns", range(8))
async def test_a_client_that_leaves_as_the_work_ends_cancels_nothing_else(num_turns):
    """Whichever comes first, what is done afterwards is not cancelled."""
    client = Client()

    async def work():
        await asyncio.sleep(0)
        client.has_left.set()
        await turns(num_turns)
        return "done"

    try:
        assert await while_connected(client, work()) == "done"
    except ClientGoneError:
        assert num_turns > 1
    await turns(10)
    assert asyncio.current_task().cancelling() == 0


async def test_somebody_elses_cancel_stays_one():
    client = Client()
    task = asyncio.create_task(while_connected(client, asyncio.sleep(60)))
    await turns(3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
