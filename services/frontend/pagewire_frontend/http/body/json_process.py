"""The process that parses large bodies. It may be killed at any time, and ends with its parent.

`json_link` starts it as `python -m pagewire_frontend.http.body.json_process`, with a socket as its
standard input. A question is a body behind a HEAD. The answer is frames, each behind a HEAD: pieces
of the value, the last of them marked, or one refusal, which is a message and a code.
"""

import marshal
import signal
import socket
import struct
from typing import Final

from pagewire_frontend.http.body.json_body import parse_object
from pagewire_frontend.http.body.value_pieces import cut
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.process.allocator import give_back_free_memory

HEAD: Final = struct.Struct("<QB")
"""Bytes of a frame, and its kind."""
PIECE: Final = 0
LAST_PIECE: Final = 1
REFUSAL: Final = 2
QUESTION: Final = 3


def main() -> None:
    """Answer questions until the socket closes."""
    # An interrupt from the keyboard goes to all processes of a terminal; the parent ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=0) as parent, parent.makefile("rb") as questions:
        while len(head := questions.read(HEAD.size)) == HEAD.size:
            length, _ = HEAD.unpack(head)
            body = questions.read(length)
            if len(body) < length:
                return
            _answer(parent, body)
            del body
            give_back_free_memory()


def _answer(parent: socket.socket, body: bytes) -> None:
    def send(kind: int, frame: bytes) -> None:
        parent.sendall(HEAD.pack(len(frame), kind))
        parent.sendall(frame)

    try:
        value = parse_object(body)
    except InvalidRequestError as error:
        send(REFUSAL, marshal.dumps((error.message, error.code)))
        return
    send(LAST_PIECE, cut(value, lambda piece: send(PIECE, piece)))


if __name__ == "__main__":
    main()
