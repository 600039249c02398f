"""Folders with certificates of roles, and channels that use any of them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import grpc.aio

from pagewire.cli.certs.authority import Authority
from pagewire_shared.rpc import links
from pagewire_shared.security.roles import LINK_HOST, LinkRole
from pagewire_shared.security.tls_files import TlsPaths, read_files


def make_certificates(
    folder: Path, roles: Sequence[LinkRole] = tuple(LinkRole), *, days: float = 1.0
) -> Path:
    """Write an authority and a certificate for each role, in folders of their names."""
    authority = Authority.create(folder, "default", 10.0)
    for role in roles:
        authority.issue(folder / role, role, cell="default", instance="1", days=days)
    return folder


@contextmanager
def links_of(folder: Path | None, *, insecure: bool = False) -> Iterator[None]:
    """Let the servers and channels of this process use a folder."""
    try:
        links.use(SimpleNamespace(tls_dir=folder and str(folder), insecure=insecure))
        yield
    finally:
        links.use(SimpleNamespace(tls_dir=None, insecure=False))


def channel_with(
    target: str, folder: Path | None, authority: Path, host: str = LINK_HOST
) -> grpc.aio.Channel:
    """Return a channel that shows the certificate in `folder`, or none.

    Args:
        authority: Folder with the authority whose servers are believed.
        host: Name that the server's certificate has to have.
    """
    root = (authority / "ca.crt").read_bytes()
    key = chain = None
    if folder is not None:
        files = read_files(TlsPaths.in_folder(folder))
        key, chain = files.key, files.certificate
    credentials = grpc.ssl_channel_credentials(root, key, chain)
    options = [("grpc.ssl_target_name_override", host), ("grpc.use_local_subchannel_pool", 1)]
    return grpc.aio.secure_channel(target, credentials, options=options)
