"""Reads the settings of the Mooncake client, by Mooncake's names: from vLLM's extra object, from
the file in MOONCAKE_CONFIG_PATH, or from MOONCAKE_MASTER."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pagewire_shared.errors import StartupError
from pagewire_shared.process.sizes import parse_size

PEER_TO_PEER: Final = "P2PHANDSHAKE"
MAX_REPLICAS: Final = 16
_FIELD: Final = "kv_transfer_config"
_WHAT: Final = "--kv-connector mooncake"
_SIZES: Final = ("global_segment_size", "local_buffer_size")
_NAMES: Final = (
    "master_server_address",
    "metadata_server",
    "local_hostname",
    *_SIZES,
    "protocol",
    "device_name",
    "replica_num",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MooncakeSettings:
    """Settings of one client.

    Attributes:
        master_server_address: host:port of the master.
        metadata_server: Where clients find each other: a URL, or P2PHANDSHAKE for nowhere.
        local_hostname: Address of this machine that other clients reach.
        global_segment_size: Bytes of memory that the worker lends to the store.
        local_buffer_size: Bytes for transfers in addition.
        protocol: "tcp", "rdma" or another one that the library was built with.
        device_name: Network device for RDMA.
        replica_num: Copies of each block.
    """

    master_server_address: str
    metadata_server: str = PEER_TO_PEER
    local_hostname: str = "127.0.0.1"
    global_segment_size: int = 1024**3
    local_buffer_size: int = 64 * 1024**2
    protocol: str = "tcp"
    device_name: str = ""
    replica_num: int = 1

    @property
    def store_name(self) -> str:
        """Name of the store that all clients of one master share."""
        return f"mooncake:{self.master_server_address}"


def read_mooncake_settings(
    given: Mapping[str, Any], environ: Mapping[str, str] = os.environ
) -> MooncakeSettings:
    """Return the settings of a worker; what `given` says wins. Raises StartupError."""
    values = {**_from_environment(environ), **given}
    unknown = sorted(set(values) - set(_NAMES))
    if unknown:
        raise _wrong(f"{unknown[0]} is unknown; there are {', '.join(_NAMES)}")
    made: dict[str, Any] = {}
    for name, value in values.items():
        if name in _SIZES:
            made[name] = _size(name, value)
        elif name == "replica_num":
            made[name] = _replicas(value)
        elif not isinstance(value, str):
            raise _wrong(f"{name} is a text")
        elif value:
            made[name] = value
    if "master_server_address" not in made:
        raise _wrong(
            "where is the master? Give master_server_address, MOONCAKE_MASTER=host:port, or a file"
            " in MOONCAKE_CONFIG_PATH"
        )
    return MooncakeSettings(**made)


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    path = environ.get("MOONCAKE_CONFIG_PATH")
    if not path:
        master = environ.get("MOONCAKE_MASTER")
        return {"master_server_address": master} if master else {}
    try:
        values = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise _wrong(f"MOONCAKE_CONFIG_PATH: cannot read {path}: {error}") from error
    if not isinstance(values, dict):
        raise _wrong(f"MOONCAKE_CONFIG_PATH: {path} holds no JSON object")
    # The file is that of all programs of Mooncake, which have settings of their own in it.
    return {name: value for name, value in values.items() if name in _NAMES}


def _size(name: str, value: Any) -> int:
    # Mooncake's units are binary whatever their spelling: 4gb is 4 GiB.
    text = re.sub(r"([kmgt])b?$", r"\1ib", str(value).strip().lower())
    try:
        return parse_size(text)
    except ValueError as error:
        raise _wrong(f"{name}: {error}") from error


def _replicas(value: Any) -> int:
    if type(value) is not int or not 1 <= value <= MAX_REPLICAS:
        raise _wrong(f"replica_num is 1 to {MAX_REPLICAS}")
    return value


def _wrong(reason: str) -> StartupError:
    return StartupError(f"{_WHAT}: {reason}", field=_FIELD)
