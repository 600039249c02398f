"""A KV store as a process of its own, as a launcher starts it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from pagewire_shared.process.allocator import with_allocator_settings

PROGRAM = ("-P", "-m", "pagewire_kvstore")


class StoreProcess:
    """A store that can be stopped, killed and started again.

    Args:
        listen: Address.
        flags: Of the store.
        program: What Python runs.
    """

    def __init__(self, listen: str, flags: list[str], program: Sequence[str] = PROGRAM) -> None:
        self.listen = listen
        self.program = program
        self.flags = flags
        self.start()

    def start(self) -> None:
        """Start it and wait until it is ready."""
        command = [sys.executable, *self.program, "--listen", self.listen]
        self.process = subprocess.Popen(
            [*command, "--exit-with-parent", "--log-level", "error", *self.flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=with_allocator_settings(os.environ, "kvstore"),
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            status = json.loads(line)
            if status["pagewire"] == "listening":
                self.address = str(status["address"])
            if status["pagewire"] == "ready":
                return
        raise SystemExit("the store ended")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def end(self) -> None:
        """Kill it and wait."""
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        """End it as Kubernetes would, and start it again."""
        self.process.terminate()
        self.process.wait()
        self.start()


@contextlib.contextmanager
def store_process(
    listen: str, *flags: str, program: Sequence[str] = PROGRAM
) -> Iterator[StoreProcess]:
    """A store that ends with the block."""
    store = StoreProcess(listen, list(flags), program)
    try:
        yield store
    finally:
        store.end()


@contextlib.contextmanager
def redis_process(folder: Path) -> Iterator[str]:
    """A Redis that keeps nothing on disk; its URL."""
    socket = folder / "redis.sock"
    command = ["redis-server", "--port", "0", "--unixsocket", str(socket), "--save", ""]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if "Ready to accept connections" in line or "ready to accept" in line:
            break
    try:
        yield f"unix://{socket}"
    finally:
        process.kill()
        process.wait()
