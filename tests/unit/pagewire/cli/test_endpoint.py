"""What a probe finds at an address, and which port a command then uses."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from pagewire.client.endpoint import grpc_address, http_url
from pagewire.client.target import parse_target
from pagewire_shared.errors import InvalidRequestError, StartupError, UnavailableError

GRPC = b"\x00\x00\x12\x04\x00\x00\x00\x00\x00"


def http(body: str) -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body.encode()


@contextmanager
def answering(answer: Callable[[int], bytes], port: int = 0) -> Iterator[int]:
    """Yield the port of a server that sends the same to everyone."""
    with socket.create_server(("127.0.0.1", port)) as server:
        bound = server.getsockname()[1]

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4096)
                    connection.sendall(answer(bound))

        threading.Thread(target=serve, daemon=True).start()
        yield bound
        server.shutdown(socket.SHUT_RDWR)


def test_the_grpc_port_is_followed_from_the_http_port() -> None:
    with answering(lambda port: http('{"grpc_port": 7}')) as port:
        place = f"127.0.0.1:{port}"
        for text in (place, f"http://{place}", f"http://{place}/v1"):
            assert grpc_address(text) == "127.0.0.1:7"
        assert http_url(place) == f"http://{place}"


def test_the_http_port_is_followed_from_the_grpc_port_beside_it() -> None:
    with answering(lambda port: http(f'{{"grpc_port": {port + 1}}}')) as port:
        try:
            with answering(lambda port: GRPC, port + 1):
                assert http_url(f"http://127.0.0.1:{port + 1}") == f"http://127.0.0.1:{port}"
        except OSError:
            pytest.skip("another program has the next port")


def test_a_grpc_port_is_used_as_it_is() -> None:
    with answering(lambda port: GRPC) as port:
        assert grpc_address(f"127.0.0.1:{port}") == f"127.0.0.1:{port}"
        with pytest.raises(UnavailableError, match="does not speak HTTP"):
            http_url(f"127.0.0.1:{port}")
    assert grpc_address("unix:/tmp/x.sock") == "unix:/tmp/x.sock"


@pytest.mark.parametrize("body", ['{"version": "1"}', "no JSON", '{"grpc_port": "x"}', "[]"])
def test_http_of_another_server_is_named_as_that(body: str) -> None:
    with (
        answering(lambda port: http(body)) as port,
        pytest.raises(UnavailableError, match="speaks HTTP; this command needs the gRPC port"),
    ):
        grpc_address(f"127.0.0.1:{port}")


def test_no_server_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(UnavailableError, match=f"no server answers at 127.0.0.1:{port}: Conn"):
        grpc_address(f"127.0.0.1:{port}")


@pytest.mark.parametrize("text", ["https://x:y", "ftp://x:1", "http://", "http://x:y", "nowhere"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises((InvalidRequestError, StartupError), match="--server"):
        parse_target(text, "--server")
