"""What benchmarks/compare makes of the bytes of an answer, and of servers that fail."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import h11
import pytest
from compare.streams import Reply, body, complete, understand
from compare.work import Request, RunFailedError

REQUEST = Request((1, 2, 3), 3)
HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(content: object) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def tokens(count: int) -> bytes:
    return event({"choices": [{"text": "x", "token_ids": [7] * count}]})


def usage(count: int) -> bytes:
    return event({"choices": [], "usage": {"completion_tokens": count}})


END = chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
WHOLE = HEAD + chunk(tokens(1)) + chunk(tokens(2)) + chunk(usage(3)) + END


def reply(*reads: bytes) -> Reply:
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="POST", target="/", headers=[("Host", "x")]))
    connection.send(h11.EndOfMessage())
    return Reply(connection, 10.0, [(11.0 + number, data) for number, data in enumerate(reads)])


def test_events_have_the_time_of_the_read_that_completed_them() -> None:
    timed = understand(
        reply(
            HEAD + chunk(tokens(1))[:20], chunk(tokens(1))[20:], chunk(tokens(2) + usage(3)), END
        ),
        REQUEST,
    )
    assert timed.arrivals == [12.0, 13.0]
    assert timed.num_tokens == 3
    assert timed.ttft == 2.0
    assert timed.gaps == [1.0]
    assert timed.seconds_per_token == 0.5


def test_an_event_in_two_chunks_of_the_transfer_is_one() -> None:
    first, second = tokens(3)[:15], tokens(3)[15:]
    timed = understand(reply(HEAD + chunk(first), chunk(second), chunk(usage(3)), END), REQUEST)
    assert timed.arrivals == [12.0]


def test_events_without_tokens_are_no_arrivals() -> None:
    empty = event({"choices": [{"text": "", "token_ids": []}]})
    timed = understand(reply(HEAD + chunk(empty), chunk(tokens(3)), chunk(usage(3)), END), REQUEST)
    assert timed.arrivals == [12.0]


def test_text_stands_for_tokens_where_ids_are_not_told() -> None:
    text = event({"choices": [{"text": "x"}]})
    assert understand(reply(HEAD + chunk(text) + chunk(usage(3)) + END), REQUEST).arrivals == [11.0]


@pytest.mark.parametrize(
    ("reads", "reason"),
    [
        ([HEAD + chunk(tokens(2)) + chunk(usage(2)) + END], "2 of 3 tokens came"),
        ([HEAD + chunk(tokens(3)) + END], "0 of 3 tokens came"),
        ([HEAD + chunk(tokens(1))], "0 of 3 tokens came"),
        ([HEAD + chunk(tokens(1)), b""], "broke off"),
        ([HEAD + chunk(event({"error": {"message": "no memory"}}))], "no memory"),
        ([b"HTTP/1.1 400 Bad\r\ncontent-length: 8\r\n\r\ntoo long"], "status 400: too long"),
        ([b"not HTTP at all\r\n\r\n"], "broke off"),
    ],
)
def test_what_is_not_whole_is_refused(reads: list[bytes], reason: str) -> None:
    with pytest.raises(RunFailedError, match=reason):
        understand(reply(*reads), REQUEST)


@contextmanager
def scripted_server(parts: list[bytes], pause_seconds: float) -> Iterator[tuple[str, int]]:
    """Answer every connection with the same parts, a pause before each."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        is_over = threading.Event()

        def answer(connection: socket.socket) -> None:
            with connection:
                connection.recv(65536)
                for part in parts:
                    is_over.wait(pause_seconds)
                    connection.sendall(part)
                is_over.wait(20)

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield listener.getsockname()
        finally:
            is_over.set()
            listener.shutdown(socket.SHUT_RDWR)


def test_requests_go_out_together_and_end_with_their_last_event() -> None:
    began = time.perf_counter()
    with scripted_server([WHOLE[:80], WHOLE[80:]], 0.1) as address:
        timed = complete(address, "m", [REQUEST] * 4, 20)
    assert [one.num_tokens for one in timed] == [3] * 4
    assert all(began < one.sent < one.arrivals[0] for one in timed)


def test_a_stream_that_does_not_end_is_given_up() -> None:
    with (
        scripted_server([WHOLE[:80]], 0) as address,
        pytest.raises(RunFailedError, match="2 streams did not end in time"),
    ):
        complete(address, "m", [REQUEST] * 2, 0.3)


def test_no_server_is_a_failed_run() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    with pytest.raises(RunFailedError, match="ConnectionRefusedError"):
        complete(address, "m", [REQUEST], 5)


def test_the_request_asks_for_ids_to_ids() -> None:
    asked = json.loads(body("m", REQUEST))
    assert (asked["prompt"], asked["max_tokens"], asked["ignore_eos"]) == ([1, 2, 3], 3, True)
