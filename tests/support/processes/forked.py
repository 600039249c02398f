"""Starts role processes of this process by forking: imports take most of a start, and most of the
time of tests that start processes.

`fork_roles` replaces `subprocess.Popen`. A command `python -P -m pagewire_ROLE ...` is then forked
from a fork server that has imported what the role imports; anything else is started as always.
"""

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.processes.fork_server import LENGTH_BYTES, read_exactly

PROGRAM = Path(__file__).with_name("fork_server.py")
PACKAGES = {f"pagewire_{role}" for role in ("frontend", "scheduler", "worker", "kvstore")}
MAX_SERVERS = 8
"""Each takes the memory of a process that has imported its role."""

LOST_STATUS = 255 << 8
"""Of a process whose fork server has ended."""
_COMMAND_WORDS = 4
_VARIABLE = ("PAGEWIRE_", "PYTEST_", "TEST_")
"""Beginnings of variables that are not read when modules are imported."""

_plain = subprocess.Popen


class _ForkServer:
    """A fork server of one package and environment."""

    def __init__(self, package: str, environ: dict[str, str]) -> None:
        self._lock = threading.Lock()
        self._link, other = socket.socketpair()
        with other:
            self._process = _plain(
                [sys.executable, "-P", str(PROGRAM), str(other.fileno()), package],
                stdin=subprocess.DEVNULL,
                env=environ,
                pass_fds=[other.fileno()],
                process_group=0,
            )
        atexit.register(self.end)

    def end(self) -> None:
        """End it, and the processes that it started; again is allowed."""
        atexit.unregister(self.end)
        self._link.close()
        self._process.kill()
        self._process.wait()

    def start(self, request: dict[str, Any], fds: list[int]) -> tuple[int, int]:
        """Return the id of a new process and the pipe that its status comes from.

        Raises:
            OSError: The fork server has ended.
        """
        ours, its = os.pipe()
        try:
            data = json.dumps(request).encode()
            head = len(data).to_bytes(LENGTH_BYTES, "big")
            with self._lock:
                socket.send_fds(self._link, [head], [*fds, its])
                self._link.sendall(data)
                answer = read_exactly(self._link, LENGTH_BYTES)
            if len(answer) < LENGTH_BYTES:
                raise ConnectionError(f"the fork server ended with {self._process.poll()}")
            return int.from_bytes(answer, "big"), ours
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(its)


_servers: dict[tuple[str, frozenset[tuple[str, str]]], _ForkServer] = {}
_servers_lock = threading.Lock()


def _server(package: str, environ: dict[str, str]) -> _ForkServer | None:
    """Return the fork server of a package and environment; None for more than MAX_SERVERS."""
    fixed = {name: value for name, value in environ.items() if not name.startswith(_VARIABLE)}
    key = package, frozenset(fixed.items())
    with _servers_lock:
        if key not in _servers and len(_servers) < MAX_SERVERS:
            _servers[key] = _ForkServer(package, fixed)
        return _servers.get(key)


@contextlib.contextmanager
def own_servers() -> Iterator[None]:
    """Begin without fork servers, and end those that were started meanwhile."""
    global _servers
    before, _servers = _servers, {}
    try:
        yield
    finally:
        for server in _servers.values():
            server.end()
        _servers = before


class ForkedPopen(subprocess.Popen):  # type: ignore[type-arg]
    """A `Popen` whose process may be the child of a fork server."""

    _status_pipe: int | None = None

    def __init__(self, *arguments: Any, **named: Any) -> None:
        # asyncio waits for its processes by their ids, which takes a child of this process.
        caller = sys._getframe(1).f_globals["__name__"]
        self._may_fork = not caller.startswith("asyncio.")
        super().__init__(*arguments, **named)

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, *more: Any) -> None:
        (_, pass_fds, cwd, env, _, _, shell, *pipes, _, gid, gids, uid, umask, session, group) = (
            more
        )
        command = [] if isinstance(args, str | bytes) else [os.fsdecode(word) for word in args]
        plain = [executable, preexec_fn, gid, gids, uid, *pass_fds]
        is_role = (
            self._may_fork
            and command[:3] == [sys.executable, "-P", "-m"]
            and len(command) >= _COMMAND_WORDS
            and command[3] in PACKAGES
        )
        environ = {os.fsdecode(k): os.fsdecode(v) for k, v in (env or os.environ).items()}
        is_plain = shell or umask != -1 or group > 0 or plain != [None] * len(plain)
        server = None if is_plain or not is_role else _server(command[3], environ)
        if server is None:
            super()._execute_child(args, executable, preexec_fn, *more)
            return
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, *_ = pipes
        request = {
            "arguments": command[_COMMAND_WORDS:],
            "environ": environ,
            "folder": os.fspath(cwd) if cwd is not None else os.getcwd(),
            "has_session": session,
            "has_group": group == 0,
            "group": os.getpgid(0),
        }
        given = (p2cread, c2pwrite, errwrite)
        fds = [fd if fd != -1 else number for number, fd in enumerate(given)]
        self.pid, self._status_pipe = server.start(request, fds)
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)

    def _status(self, flags: int) -> tuple[int, int]:
        """As `os.waitpid` of the process."""
        assert self._status_pipe is not None
        os.set_blocking(self._status_pipe, not flags & os.WNOHANG)
        try:
            found = os.read(self._status_pipe, LENGTH_BYTES)
        except BlockingIOError:
            return 0, 0
        os.close(self._status_pipe)
        return self.pid, int.from_bytes(found, "big") if found else LOST_STATUS

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._status_pipe is None:
            return super()._try_wait(wait_flags)
        return self._status(wait_flags)

    def _internal_poll(self, *more: Any, **named: Any) -> int | None:
        if self._status_pipe is None:
            return super()._internal_poll(*more, **named)
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):
            with contextlib.ExitStack() as stack:
                stack.callback(self._waitpid_lock.release)
                if self.returncode is None:
                    pid, status = self._status(os.WNOHANG)
                    if pid:
                        self._handle_exitstatus(status)
        return self.returncode


def fork_roles() -> None:
    """Let processes of roles that this process starts be forked, where the system can."""
    if sys.platform == "linux" and sys.version_info < (3, 14):
        subprocess.Popen = ForkedPopen  # type: ignore[misc]
