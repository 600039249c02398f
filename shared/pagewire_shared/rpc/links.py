"""Opens channels and servers of the links between roles: with TLS, where this process has it.

Links over Unix sockets have none: the folder of the socket says who reaches it. A process has one
certificate for all its links, so the setting is the process's (`use`).
"""

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import grpc.aio

from pagewire_shared.errors import StartupError
from pagewire_shared.rpc.address import Address, parse_address
from pagewire_shared.rpc.options import Options
from pagewire_shared.security.caller_check import CallerInterceptor
from pagewire_shared.security.expiry import show_end
from pagewire_shared.security.instances import AllowedInstances
from pagewire_shared.security.roles import LINK_HOST, LinkRole, instance_host
from pagewire_shared.security.tls_files import Stamp, TlsPaths, WatchedTlsFiles

if TYPE_CHECKING:
    from prometheus_client import Gauge

_logger = logging.getLogger(__name__)


class TlsSettings(Protocol):
    """The settings of a process that this module reads."""

    @property
    def tls_dir(self) -> str | None: ...
    @property
    def insecure(self) -> bool: ...


class LinkSecurity:
    """The certificate of this process, read again when its files change.

    Args:
        folder: Folder with the files; see tls_files.

    Raises:
        StartupError: They cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self._watched = WatchedTlsFiles(TlsPaths.in_folder(folder))
        self.instances = AllowedInstances(folder)
        show_end(self._watched)

    def own_instance(self, role: LinkRole) -> str:
        """Return the instance that the certificate is bound to, or empty."""
        found = [one.partition("/") for one in self._watched.read().text.instances]
        return next((instance for of_role, _, instance in found if of_role == role), "")

    @property
    def stamp(self) -> Stamp | None:
        """What changes with the certificate."""
        return self._watched.stamp

    def channel(self, target: str, host: str, options: Options) -> grpc.aio.Channel:
        """Return a channel to a server whose certificate is for `host`."""
        files = self._watched.read()
        credentials = grpc.ssl_channel_credentials(files.authority, files.key, files.certificate)
        own: list[tuple[str, Any]] = [*options, ("grpc.ssl_target_name_override", host)]
        return grpc.aio.secure_channel(target, credentials, options=own)

    def server_credentials(self) -> grpc.ServerCredentials:
        """Return credentials that ask peers for a certificate, and follow the files."""
        return following_credentials(self._watched, asks_clients=True)


def following_credentials(
    watched: WatchedTlsFiles, *, asks_clients: bool
) -> grpc.ServerCredentials:
    """Return credentials of a server that follow the files.

    Args:
        asks_clients: Clients have to show a certificate of the authority.
    """

    def configuration() -> Any:
        files = watched.read()
        pairs = [(files.key, files.certificate)]
        return grpc.ssl_server_certificate_configuration(pairs, files.authority or None)

    return grpc.dynamic_ssl_server_credentials(
        configuration(), configuration, require_client_authentication=asks_clients
    )


class _Process:
    security: LinkSecurity | None = None
    is_insecure = False


_process = _Process()


def use(settings: TlsSettings) -> None:
    """Take the settings of this process. Raises StartupError."""
    folder = settings.tls_dir
    _process.security = None if folder is None else LinkSecurity(Path(folder))
    _process.is_insecure = settings.insecure


def use_folder(folder: str) -> str:
    """Take the certificate of a folder for the links of this command; return the folder. Raises
    StartupError."""
    _process.security = LinkSecurity(Path(folder))
    return folder


def stamp() -> Stamp | None:
    """Return what changes with the certificate of this process; None without one."""
    return None if _process.security is None else _process.security.stamp


def own_instance(role: LinkRole) -> str:
    """Return the instance that the certificate of this process is bound to; empty for none."""
    return "" if _process.security is None else _process.security.own_instance(role)


def open_channel(
    address: Address | str, role: LinkRole | None, options: Options, *, instance: str = ""
) -> grpc.aio.Channel:
    """Return a channel to a server of another role.

    Args:
        role: The role that the server has to have; None for any.
        instance: The instance of the role that its certificate has to be bound to; empty for any.
    """
    where = parse_address(address, setting="address") if isinstance(address, str) else address
    if _process.security is None or where.is_unix:
        return grpc.aio.insecure_channel(str(where), options=options)
    if role is None:
        host = LINK_HOST
    else:
        host = instance_host(role, instance) if instance else role.host
    return _process.security.channel(str(where), host, options)


@dataclass(frozen=True, slots=True)
class ServerGuard:
    """What a server between roles listens with; without TLS it has no `credentials`."""

    interceptors: Sequence[grpc.aio.ServerInterceptor] = ()
    credentials: grpc.ServerCredentials | None = None


NO_GUARD: Final = ServerGuard()


def guard(address: Address, *, setting: str) -> ServerGuard:
    """Return what a server between roles listens with.

    Raises:
        StartupError: Other machines reach the address, and this process has neither --tls-dir nor
            --insecure; names `setting`.
    """
    security = _process.security
    if security is not None and not address.is_unix:
        interceptor = CallerInterceptor(security.instances)
        return ServerGuard((interceptor,), security.server_credentials())
    if address.is_local:
        return NO_GUARD
    if not _process.is_insecure:
        raise StartupError(
            f"{setting} {address} is reached by other machines: give --tls-dir (`pagewire certs"
            f" --help`), or --insecure where nobody but Pagewire's own processes reaches it",
            field=setting,
        )
    _logger.warning(
        "%s %s is open to whoever reaches it, without authentication or encryption (--insecure):"
        " let only Pagewire's own processes reach it (network policy, firewall)",
        setting,
        address,
    )
    with contextlib.suppress(ImportError):  # roles have it
        open_ports().labels(setting).set(1)
    return NO_GUARD


@cache
def open_ports() -> "Gauge":
    """Return the metric of ports that ask for no certificate."""
    from prometheus_client import Gauge

    return Gauge("pagewire_open_port", "A port between roles without TLS (--insecure)", ["setting"])
