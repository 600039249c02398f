"""Makes the library that --kv-transport names."""

from typing import Final

from pagewire_shared.errors import StartupError
from pagewire_worker.transfer_engines.engine import TransferEngine
from pagewire_worker.transfer_engines.mooncake_engine import MooncakeEngine
from pagewire_worker.transfer_engines.nixl_engine import NixlEngine

_UNIX: Final = "unix:"
_LOOPBACK: Final = "127.0.0.1"


def engine_of(kv_transport: str, address: str, *, is_insecure: bool) -> TransferEngine | None:
    """Return the library of a worker; None for a transport that needs none.

    Args:
        address: host:port or unix:PATH, where other workers reach this one.
        is_insecure: Whether ports may be open to all who reach them, as those of these libraries
            are.

    Raises:
        StartupError: It is not installed, does not start, or may open no port.
    """
    if kv_transport not in ("nixl", "mooncake"):
        return None
    if not is_insecure:
        raise StartupError(
            f"--kv-transport: {kv_transport} opens ports without authentication or encryption; add"
            " --insecure where nobody but Pagewire's own processes reaches them",
            field="kv_transport",
        )
    if kv_transport == "nixl":
        return NixlEngine()
    return MooncakeEngine(_host_of(address))


def _host_of(address: str) -> str:
    if address.startswith(_UNIX):
        return _LOOPBACK
    return address.rpartition(":")[0].strip("[]") or _LOOPBACK
