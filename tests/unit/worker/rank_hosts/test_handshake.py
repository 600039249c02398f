"""Hosts of a group prove a key to each other, and say who they are, before anything else."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pagewire_shared.rpc.address import Address
from pagewire_worker.rank_hosts import connections, handshake
from pagewire_worker.rank_hosts.connections import HostListener, LinkTable, dial
from pagewire_worker.rank_hosts.group_start import host_facts, why_refused
from pagewire_worker.rank_hosts.handshake import (
    HostGoneError,
    HostRefusedError,
    accept,
    admit,
    has_news,
    introduce,
    receive_message,
    refuse,
    send_message,
)
from pagewire_worker.rank_hosts.layout import HostLayout

KEY, OTHER = b"k" * 32, b"o" * 32


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    a, b = socket.socketpair()
    yield a, b
    a.close()
    b.close()


def beside(act: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Run `act` in a thread; its result or error comes into the list."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(act())
        except (HostRefusedError, HostGoneError) as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, found


def test_two_hosts_with_one_key_know_each_other(ends: tuple[socket.socket, socket.socket]) -> None:
    def take() -> dict[str, Any]:
        facts = admit(ends[1], KEY)
        accept(ends[1])
        return facts

    thread, found = beside(take)
    introduce(ends[0], KEY, {"host": 1})
    thread.join(5)
    assert found == [{"host": 1}]


def test_another_key_is_refused_by_the_one_who_dials(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    thread, found = beside(lambda: admit(ends[1], OTHER))
    with pytest.raises(HostRefusedError, match="another key"):
        introduce(ends[0], KEY, {})
    ends[0].close()
    thread.join(5)
    assert isinstance(found[0], HostGoneError)


def test_a_proof_is_of_no_use_to_who_has_no_key(ends: tuple[socket.socket, socket.socket]) -> None:
    """Neither another one, nor the one that the host itself gives."""
    for made_up in (lambda proof: proof, lambda proof: "ä" * 64, lambda proof: 7):
        thread, found = beside(lambda: admit(ends[1], KEY))
        send_message(ends[0], {"nonce": "0" * 32, "facts": {}})
        answer, _ = receive_message(ends[0], None)
        send_message(ends[0], {"proof": made_up(answer["proof"])})
        refusal, _ = receive_message(ends[0], None)
        thread.join(5)
        assert "another key" in refusal["refused"]
        assert isinstance(found[0], HostRefusedError)


def test_a_refusal_says_why(ends: tuple[socket.socket, socket.socket]) -> None:
    def take() -> None:
        admit(ends[1], KEY)
        refuse(ends[1], "version: 1, the worker of the group has 2")

    thread, _ = beside(take)
    with pytest.raises(HostRefusedError, match="version: 1, the worker of the group has 2"):
        introduce(ends[0], KEY, {})
    thread.join(5)


@pytest.mark.parametrize(
    "sent",
    [b"GET / HTTP/1.1\r\n\r\n", struct.pack("<I", 4) + b"[1]x", struct.pack("<I", 2) + b"[]"],
)
def test_other_protocols_are_refused(
    ends: tuple[socket.socket, socket.socket], sent: bytes
) -> None:
    ends[0].sendall(sent)
    with pytest.raises(HostRefusedError):
        admit(ends[1], KEY)


def test_a_host_that_says_nothing_holds_nobody_for_long(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "HANDSHAKE_SECONDS", 0.1)
    ends[0].sendall(b"\1")
    with pytest.raises(HostGoneError, match="in time"):
        admit(ends[1], KEY)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("protocol", "pagewire-ranks-0"),
        ("version", "0.0.1"),
        ("kernels", "else"),
        ("hosts", 3),
        ("host", 0),
        ("host", 2),
        ("host", "1"),
        ("host", None),
    ],
)
def test_facts_that_differ_are_named(name: str, value: object) -> None:
    facts = host_facts(1, 2, None)
    assert why_refused(facts, 2) is None
    reason = why_refused({**facts, name: value}, 2)
    assert reason is not None
    assert reason.startswith(f"{name}: ")


def test_hosts_that_say_nothing_hold_up_no_other() -> None:
    listener = HostListener(Address("127.0.0.1", 0), KEY)
    place = (listener.address.host, listener.address.port)
    silent = [socket.create_connection(place) for _ in range(5)]
    thread, found = beside(lambda: dial(listener.address, KEY, {"host": 1}).close())
    taken = None
    while taken is None:
        taken = listener.next_host(0.1)
        # Whoever says nothing is still waited for.
        assert not any(has_news(one) for one in silent)
    peer, facts = taken
    accept(peer)
    thread.join(5)
    assert (facts, found) == ({"host": 1}, [None])
    listener.close()
    for one in (peer, *silent):
        one.close()


def test_no_more_handshakes_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "HANDSHAKE_SECONDS", 0.3)
    monkeypatch.setattr(connections, "_MOST_HANDSHAKES", 2)
    listener = HostListener(Address("127.0.0.1", 0), KEY)
    place = (listener.address.host, listener.address.port)
    silent = [socket.create_connection(place) for _ in range(3)]
    assert listener.next_host(0.1) is None
    running = [one for one in threading.enumerate() if one.name == "rank-handshake"]
    assert len(running) == 2
    while not all(has_news(one) for one in silent):
        assert listener.next_host(0.1) is None
    listener.close()
    for one in silent:
        one.close()


def test_connections_of_another_start_are_refused() -> None:
    """So that what is left of an earlier group does not come into this one."""
    layout = HostLayout(4, 2)
    listener = HostListener(Address("127.0.0.1", 0), KEY)
    mine = LinkTable(layout, 0)
    thread, found = beside(lambda: mine.collect(listener, [1], "new"))
    with pytest.raises(HostRefusedError, match="another start of the group"):
        LinkTable(layout, 1).dial(0, listener.address, KEY, "old")
    with pytest.raises(HostRefusedError, match="another key"):
        dial(listener.address, OTHER, {})
    theirs = LinkTable(layout, 1)
    theirs.dial(0, listener.address, KEY, "new")
    thread.join(5)
    listener.close()
    assert found == [None]
    for table, peers in ((mine, {0: [2], 1: [3]}), (theirs, {2: [0], 3: [1]})):
        links = table.links()
        assert {rank: [link.peer for link in own] for rank, own in links.items()} == peers
        for own in links.values():
            for link in own:
                with socket.socket(fileno=link.fd) as peer:
                    assert peer.getblocking()
