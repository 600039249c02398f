"""Reads the key of a group, and says where its port may be open."""

import logging
from typing import Final

from pagewire_shared.errors import StartupError
from pagewire_shared.rpc.address import Address, parse_address
from pagewire_shared.rpc.links import open_ports
from pagewire_worker.config import WorkerConfig
from pagewire_worker.host.key_file import read_keys

DEFAULT_LISTEN: Final = "0.0.0.0:8400"
"""Of pods, which know each other's addresses from names."""

_logger = logging.getLogger(__name__)


def rank_key(config: WorkerConfig) -> bytes:
    """Return the key of the hosts of a group. Raises StartupError without one."""
    if not config.rank_key_file:
        raise StartupError(
            "--rank-key-file is needed: hosts of a group prove a key to each other"
            " (`openssl rand -hex 32`)",
            field="rank_key_file",
        )
    return read_keys(config.rank_key_file, setting="rank_key_file")[0]


def open_address(config: WorkerConfig, default: str = DEFAULT_LISTEN) -> Address:
    """Return where this host listens for others: --rank-listen, or `default`.

    Raises:
        StartupError: Other machines reach the address, and --insecure does not allow that.
    """
    address = parse_address(config.rank_listen or default, setting="--rank-listen")
    if address.is_local:
        return address
    if not config.insecure:
        raise StartupError(
            f"--rank-listen {address}: states of ranks pass it in the clear, also with --tls-dir;"
            " add --insecure where only the hosts of the group reach it or read along",
            field="rank_listen",
        )
    _logger.warning(
        "--rank-listen %s: states of ranks pass it without encryption (--insecure): let only the"
        " hosts of the group reach it (network policy, firewall)",
        address,
    )
    open_ports().labels("--rank-listen").set(1)
    return address
