"""A Redis of a test's own, on a Unix socket, to be killed, stopped and filled."""

import os
import signal
import socket
import subprocess
import time

DEADLINE_SECONDS = 20


def listens(path):
    """Whether somebody takes connections at a Unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


class RedisServer:
    """One process; a fresh one each time it is started, for nothing is saved."""

    def __init__(self, program, folder):
        self._program = program
        self._folder = folder
        self.socket = folder / "redis.sock"
        self.url = f"unix://{self.socket}"
        self._process = None

    def start(self, *options):
        assert self._process is None
        command = [self._program, "--port", "0", "--unixsocket", str(self.socket)]
        command += ["--save", "", "--appendonly", "no", "--dir", str(self._folder), *options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        end = time.monotonic() + DEADLINE_SECONDS
        # The file is there a moment before anybody listens.
        while not listens(self.socket):
            assert self._process.poll() is None, "redis-server ended"
            assert time.monotonic() < end, "redis-server does not listen"
            time.sleep(0.005)
        return self

    def kill(self):
        self._process.kill()
        self._process.wait(DEADLINE_SECONDS)
        self._process = None
        self.socket.unlink(missing_ok=True)

    def stop(self):
        """As a process that hangs: connections are taken, nothing is answered."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def go_on(self):
        os.kill(self._process.pid, signal.SIGCONT)

    def close(self):
        if self._process is not None:
            self.kill()
