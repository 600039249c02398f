"""A TCP proxy that can delay, cut or change what a server answers."""

import contextlib
import random
import socket
import threading
import time
from collections.abc import Callable

Change = Callable[[bytearray], None]
_RUN = 4096


def flip_bits(share: float, seed: int) -> Change:
    """Return a change that flips a bit of that share of all runs of 4 KiB.

    Pieces of fewer bytes, which are answers without a block, stay as they are.
    """
    chance = random.Random(seed)

    def change(piece: bytearray) -> None:
        for start in range(0, len(piece) - _RUN + 1, _RUN):
            if chance.random() < share:
                piece[start + chance.randrange(_RUN)] ^= 1 << chance.randrange(8)

    return change


class LyingProxy:
    """Listens on a port of its own; a context manager.

    Attributes:
        delay: Seconds before each piece that the server sends.
        change: Changes pieces that the server sends, in place.
        num_changed: Pieces that were changed.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self.delay = 0.0
        self.change: Change | None = None
        self.num_changed = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "LyingProxy":
        return self

    def __exit__(self, *exception: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                for source, target, is_answer in ((client, server, False), (server, client, True)):
                    target.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(
                        target=self._move, args=(source, target, is_answer), daemon=True
                    ).start()

    def _move(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError), source, target:
            while data := source.recv(64 * 1024):
                piece = bytearray(data)
                if is_answer and self.delay:
                    time.sleep(self.delay)
                if is_answer and self.change is not None:
                    self.change(piece)
                    self.num_changed += piece != data
                target.sendall(piece)
            with contextlib.suppress(OSError):
                target.shutdown(socket.SHUT_RDWR)
