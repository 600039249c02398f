"""A port that several processes share, and nobody else."""

import socket
from collections.abc import Iterator

import pytest

from pagewire.local.port_reservation import PortReservation
from pagewire_shared.errors import StartupError

HOST = "127.0.0.1"


def listen(port: int, *, is_shared: bool) -> socket.socket:
    """Listen as servers do, with SO_REUSEADDR."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(is_shared))
    try:
        listener.bind((HOST, port))
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


@pytest.fixture
def reserved() -> Iterator[PortReservation]:
    reservation = PortReservation(HOST, 0, setting="--port")
    yield reservation
    reservation.close()


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_taken_port_is_refused_even_if_it_could_be_shared(is_shared: bool) -> None:
    with listen(0, is_shared=is_shared) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartupError, match=f"--port: cannot listen on .*:{port}: Address"):
            PortReservation(HOST, port, setting="--port")


def test_several_processes_listen_and_no_other_program_can(reserved: PortReservation) -> None:
    # Nobody listens yet: what is reserved must be so all the same.
    with pytest.raises(OSError, match="in use"):
        listen(reserved.port, is_shared=False)
    with (
        listen(reserved.port, is_shared=True),
        listen(reserved.port, is_shared=True),
        pytest.raises(OSError, match="in use"),
    ):
        listen(reserved.port, is_shared=False)
    listen(reserved.port, is_shared=True).close()


def test_a_reservation_takes_no_connections(reserved: PortReservation) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, reserved.port), timeout=5)
    with listen(reserved.port, is_shared=True) as only:
        only.settimeout(5)
        for _ in range(20):
            with socket.create_connection((HOST, reserved.port), timeout=5):
                only.accept()[0].close()


def test_close_frees_the_port() -> None:
    reservation = PortReservation(HOST, 0, setting="--port")
    reservation.close()
    listen(reservation.port, is_shared=False).close()


def test_an_invalid_host_or_another_system_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StartupError, match=r"--host: nowhere\.invalid"):
        PortReservation("nowhere.invalid", 0, setting="--port")
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(StartupError, match="--frontends: several on one port need Linux"):
        PortReservation(HOST, 0, setting="--port")
