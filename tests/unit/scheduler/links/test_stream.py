"""A peer is cut off for what it does not read, and for nothing else."""

import asyncio
from dataclasses import dataclass, field

import pytest

from pagewire_scheduler.links import stream
from pagewire_shared.errors import PagewireError, UnavailableError
from pagewire_shared.rpc.send_queue import SendQueue


@dataclass
class Sized:
    size: int = 1

    def ByteSize(self) -> int:
        return self.size


@dataclass
class Peer:
    """One stream, and what it ended with."""

    now: float = 0.0
    ends: list[PagewireError | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.outbox: SendQueue[Sized] = SendQueue(max_bytes=100, clock=lambda: self.now)
        self.written = stream.run_stream(self.outbox, self._silence(), lambda _: None, self._close)

    async def _silence(self):
        await asyncio.Event().wait()
        yield

    def _close(self, error: PagewireError | None) -> None:
        self.ends.append(error)
        self.outbox.close(error)


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "LOOK_SECONDS", 0.001)


async def test_who_takes_nothing_for_too_long_is_cut_off() -> None:
    peer = Peer()
    for _ in range(2):
        peer.outbox.put(Sized())
    await anext(peer.written)
    peer.now = stream.STALL_SECONDS - 1
    await asyncio.sleep(0.05)
    assert not peer.ends
    peer.now = stream.STALL_SECONDS
    async with asyncio.timeout(10):
        while not peer.ends:
            await asyncio.sleep(0.001)
    (error,) = peer.ends
    assert isinstance(error, UnavailableError)
    with pytest.raises(UnavailableError, match="nothing was read for 10 s"):
        await anext(peer.written)


async def test_who_reads_slowly_is_not_cut_off_whatever_waits() -> None:
    peer = Peer()
    for _ in range(10_000):
        peer.outbox.put(Sized())
    for _ in range(50):
        await anext(peer.written)
        peer.now += stream.STALL_SECONDS - 1
        await asyncio.sleep(0.003)
    assert not peer.ends
    await peer.written.aclose()


class Pausing:
    """An outbox whose writer gets its turn between two looks, however late they are."""

    num_looks = 0

    @property
    def stalled_seconds(self) -> float:
        self.num_looks += 1
        return 60.0 if self.num_looks % 2 else 0.0

    async def drain(self):
        await asyncio.Event().wait()
        yield


async def test_a_pause_of_this_process_cuts_nobody_off() -> None:
    ends: list[PagewireError | None] = []
    outbox, peer = Pausing(), Peer()
    written = stream.run_stream(outbox, peer._silence(), lambda _: None, ends.append)
    task = asyncio.create_task(anext(written))
    while outbox.num_looks < 10:
        await asyncio.sleep(0.001)
    assert not ends
    task.cancel()
    await asyncio.wait([task])
