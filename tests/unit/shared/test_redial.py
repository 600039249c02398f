"""Waiting between two attempts: shorter when another server has begun to listen."""

import asyncio
from pathlib import Path

from pagewire_shared.rpc.address import Address
from pagewire_shared.rpc.redial import LOOK_SECONDS, Redial
from pagewire_shared.rpc.server import SocketFile

LONG_SECONDS = 600.0


def publish(path: Path) -> None:
    """Put a file where a socket of another server would be."""
    file = SocketFile(str(path))
    name = file.next_name()
    Path(name).touch()
    file.publish(name)


async def is_waiting(task: asyncio.Task[None]) -> bool:
    done, _ = await asyncio.wait((task,), timeout=5 * LOOK_SECONDS)
    return not done


async def test_a_new_socket_ends_the_wait(tmp_path: Path) -> None:
    path = tmp_path / "s"
    publish(path)
    redial = Redial(Address(path=str(path)))
    redial.begin()
    waiting = asyncio.create_task(redial.wait(LONG_SECONDS))
    assert await is_waiting(waiting)
    publish(path)
    await asyncio.wait_for(waiting, 30)
    # What the next attempt meets is not new after it.
    redial.begin()
    waiting = asyncio.create_task(redial.wait(LONG_SECONDS))
    assert await is_waiting(waiting)
    waiting.cancel()


async def test_a_socket_made_during_the_attempt_ends_the_wait(tmp_path: Path) -> None:
    path = tmp_path / "s"
    redial = Redial(Address(path=str(path)))
    redial.begin()
    publish(path)
    await asyncio.wait_for(redial.wait(LONG_SECONDS), 30)


async def test_a_removed_socket_does_not_end_the_wait(tmp_path: Path) -> None:
    path = tmp_path / "s"
    publish(path)
    redial = Redial(Address(path=str(path)))
    redial.begin()
    path.unlink()
    waiting = asyncio.create_task(redial.wait(LONG_SECONDS))
    assert await is_waiting(waiting)
    # The next one may get the same inode.
    publish(path)
    await asyncio.wait_for(waiting, 30)


async def test_without_a_new_socket_the_wait_takes_its_full_time(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    for address in (Address(path=str(tmp_path / "s")), Address(host="127.0.0.1", port=1)):
        redial = Redial(address)
        began = loop.time()
        await asyncio.wait_for(redial.wait(0.05), 30)
        assert loop.time() - began >= 0.045
