"""Starts processes of one role by forking itself, after it has imported what they import.

Run: python -P fork_server.py SOCKET_FD PACKAGE

For each request it answers with the id of a new process, which runs `python -m PACKAGE`, and writes
the status of its end into the pipe that came with the request. It ends when the socket closes.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
from typing import Any

LENGTH_BYTES = 4
NUM_FDS = 4
"""Standard input, output and error, and where the status goes."""


def read_exactly(link: socket.socket, count: int) -> bytes:
    """Read `count` bytes; fewer where the other side closed."""
    found = b""
    while len(found) < count and (more := link.recv(count - len(found))):
        found += more
    return found


def receive(link: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return what a process is to be and its descriptors, or None at the end."""
    head, fds, _, _ = socket.recv_fds(link, LENGTH_BYTES, NUM_FDS)
    if not head:
        return None
    head += read_exactly(link, LENGTH_BYTES - len(head))
    return json.loads(read_exactly(link, int.from_bytes(head, "big"))), fds


def become(request: dict[str, Any], fds: list[int]) -> None:
    """Make this process what the request says."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request["has_session"]:
        os.setsid()
    elif request["has_group"]:
        os.setpgid(0, 0)
    else:
        os.setpgid(0, request["group"])
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
        os.close(fd)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environ"])


def reap(pipes: dict[int, int]) -> None:
    """Hand on the status of every process that has ended."""
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            pipe = pipes.pop(found[0])
            with contextlib.suppress(OSError):
                os.write(pipe, found[1].to_bytes(LENGTH_BYTES, "big"))
            os.close(pipe)


def serve(link: socket.socket) -> list[str] | None:
    """Fork for each request; return the arguments in a new process, and None at the end."""
    pipes: dict[int, int] = {}
    ended, wake = os.pipe()
    for fd in (ended, wake):
        os.set_blocking(fd, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    while True:
        readable, _, _ = select.select([link, ended], [], [])
        if ended in readable:
            os.read(ended, 4096)
            reap(pipes)
        if link not in readable:
            continue
        received = receive(link)
        if received is None:
            return None
        request, (*standard, pipe) = received
        pid = os.fork()
        if pid == 0:
            link.close()
            for fd in (ended, wake, pipe, *pipes.values()):
                os.close(fd)
            become(request, standard)
            return list(request["arguments"])
        pipes[pid] = pipe
        for fd in standard:
            os.close(fd)
        link.sendall(pid.to_bytes(LENGTH_BYTES, "big"))


def main() -> None:
    """Import, serve, and run the role in each new process."""
    link, package = socket.socket(fileno=int(sys.argv[1])), sys.argv[2]
    program = f"{package}.__main__"
    importlib.import_module(program).load()
    # So that it runs as a program later.
    del sys.modules[program]
    gc.collect()
    gc.freeze()
    arguments = serve(link)
    if arguments is not None:
        sys.argv = [package, *arguments]
        runpy.run_module(package, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
