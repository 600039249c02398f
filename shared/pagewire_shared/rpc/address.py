"""Addresses of processes, host:port or unix:path, with errors that name the setting."""

import ipaddress
import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path

from pagewire_shared.errors import StartupError

# sockaddr_un.sun_path has 108 bytes on Linux, 104 on macOS, with the final zero.
MAX_SOCKET_PATH_BYTES = 103

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a server: either `path` or `host` and `port`."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else f"{_bracketed(self.host)}:{self.port}"

    @property
    def is_unix(self) -> bool:
        """Whether this is a Unix socket."""
        return bool(self.path)

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it; False for all names but localhost."""
        if self.is_unix or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def parse_address(text: str, *, setting: str) -> Address:
    """Return the address in `text`. Raises StartupError naming `setting`."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:").removeprefix("//")
        if not path or len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
            raise StartupError(
                f"{setting}: a Unix socket path needs 1 to {MAX_SOCKET_PATH_BYTES} bytes, "
                f"got {path!r}",
                field=setting,
            )
        return Address(path=path)
    host, separator, port = text.rpartition(":")
    if not separator or not host or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise StartupError(
            f"{setting}: {text!r} is no address; write host:port or unix:path", field=setting
        )
    return Address(host=host.strip("[]"), port=int(port))


def require_free(address: Address, *, setting: str) -> None:
    """Raise StartupError when the address is in use; remove the socket file of a dead process.

    gRPC itself reports a taken port as a bare failure, and a taken Unix socket not at all.
    """
    if address.is_unix:
        _require_free_path(Path(address.path), setting)
        return
    if address.port == 0:
        return
    info = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
    with socket.socket(info[0], socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(info[4])
        except OSError as error:
            raise StartupError(
                f"{setting}: cannot listen on {address}: {error.strerror}", field=setting
            ) from error


def _require_free_path(path: Path, setting: str) -> None:
    if not path.exists():
        return
    if not stat.S_ISSOCK(path.stat().st_mode):
        raise StartupError(f"{setting}: {path} exists and is no socket", field=setting)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()  # left behind by a killed process
            return
    raise StartupError(f"{setting}: another process listens on {path}", field=setting)
