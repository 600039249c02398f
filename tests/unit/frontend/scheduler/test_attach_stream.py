"""A stream whose scheduler takes nothing, or pauses: what is queued meanwhile, and when it ends."""

import asyncio

import pytest

from pagewire_frontend.scheduler import attach_stream
from pagewire_frontend.scheduler.attach_stream import AttachStream
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as pb
from pagewire_shared.errors import UnavailableError

SECONDS = 60.0


class Call:
    """A call that takes messages while `is_open` is set, and says nothing."""

    def __init__(self):
        self.is_open = asyncio.Event()
        self.written = []

    async def write(self, message):
        await self.is_open.wait()
        self.written.append(message)

    async def read(self):
        await asyncio.Event().wait()

    def cancel(self):
        pass


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(attach_stream, "HEARTBEAT_SECONDS", 0.02)
    monkeypatch.setattr(attach_stream, "STALL_SECONDS", 0.1)


def abort(handle):
    return pb.AttachFrontendRequest(abort=pb.Abort(handle=handle))


async def test_who_takes_nothing_is_dialled_again():
    call = Call()
    stream = AttachStream(call, silence_seconds=SECONDS)
    stream.send(abort(1))
    with pytest.raises(UnavailableError, match="taken nothing"):
        async with asyncio.timeout(SECONDS):
            await stream.exchange(lambda message: None)


async def test_a_pause_breaks_nothing_however_much_waits(monkeypatch):
    monkeypatch.setattr(attach_stream, "STALL_SECONDS", SECONDS)
    call = Call()
    stream = AttachStream(call, silence_seconds=SECONDS)
    made = []

    def crowd():
        for handle in range(10_000):
            made.append(handle)
            yield pb.AttachFrontendRequest(submit=pb.Submit(handle=handle))

    stream.send_each(crowd())
    for handle in range(10_000):
        stream.send(abort(handle))
    task = asyncio.create_task(stream.exchange(lambda message: None))
    await asyncio.sleep(0.2)
    assert len(made) == 1, "a message is made when the one before is written"
    call.is_open.set()
    async with asyncio.timeout(SECONDS):
        while len(call.written) < 20_001:
            await asyncio.sleep(0.01)
    assert not task.done()
    kinds = [message.WhichOneof("message") for message in call.written]
    assert kinds[:20_000] == ["submit"] * 10_000 + ["abort"] * 10_000
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
