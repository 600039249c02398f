"""Sockets bound at one path one after another."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagewire_shared.rpc.server import SocketFile


@pytest.fixture
def listeners() -> Iterator[list[socket.socket]]:
    opened: list[socket.socket] = []
    yield opened
    for one in opened:
        one.close()


def listen(name: str, opened: list[socket.socket]) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(name)
    listener.listen()
    opened.append(listener)


def test_clients_find_the_last_server_despite_late_removals(
    tmp_path: Path, listeners: list[socket.socket]
) -> None:
    path = tmp_path / "s"
    file = SocketFile(str(path))
    names = [file.next_name(), file.next_name()]
    for name in names:
        listen(name, listeners)
        file.publish(name)
    for name in names:
        Path(name).unlink(missing_ok=True)  # as gRPC does when it closes a socket
    listeners[0].close()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(str(path))
    file.remove()
    assert list(tmp_path.iterdir()) == []
    file.remove()


def test_the_file_of_another_process_stays(tmp_path: Path, listeners: list[socket.socket]) -> None:
    path = tmp_path / "s"
    file = SocketFile(str(path))
    file.remove()
    name = file.next_name()
    listen(name, listeners)
    file.publish(name)
    path.rename(tmp_path / "moved")
    listen(str(path), listeners)
    file.remove()
    assert path.is_socket()
