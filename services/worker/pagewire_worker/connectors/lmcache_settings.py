"""Reads the settings of the LMCache client, by LMCache's names: from vLLM's extra object, or from
LMCACHE_REMOTE_URL."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pagewire_shared.errors import StartupError

_FIELD: Final = "kv_transfer_config"
_SCHEME: Final = "lm://"
_PREFIX: Final = "lmcache."
_URL: Final = "remote_url"
_LOSSLESS: Final = {"remote_serde": "naive"}
"""Settings of LMCache that may be there, with the only value that is served."""


@dataclass(frozen=True, slots=True)
class LmcacheSettings:
    """Where the server is."""

    host: str
    port: int

    @property
    def store_name(self) -> str:
        """Name of the store that all clients of one server share."""
        return f"lmcache:{self.host}:{self.port}"


def read_lmcache_settings(
    given: Mapping[str, Any], environ: Mapping[str, str] = os.environ
) -> LmcacheSettings:
    """Return the settings of a worker; what `given` says wins. Raises StartupError."""
    values = {name.removeprefix(_PREFIX): value for name, value in given.items()}
    for name, value in values.items():
        if name != _URL and _LOSSLESS.get(name) != value:
            takes = f"{name} is {_LOSSLESS[name]}" if name in _LOSSLESS else f"{name} is unknown"
            raise _wrong(f"{takes}; blocks go whole and unchanged to {_PREFIX}{_URL}")
    url = values.get(_URL) or environ.get("LMCACHE_REMOTE_URL")
    if not url:
        raise _wrong(
            f"where is the server? Give {_PREFIX}{_URL} or LMCACHE_REMOTE_URL={_SCHEME}host:port"
        )
    host, colon, port = str(url).removeprefix(_SCHEME).rpartition(":")
    is_port = port.isdecimal() and 0 < int(port) < 65536
    if not str(url).startswith(_SCHEME) or not (host and colon and is_port):
        raise _wrong(f"{url!r} is not {_SCHEME}host:port, of a server started with lmcache_server")
    return LmcacheSettings(host.strip("[]"), int(port))


def _wrong(reason: str) -> StartupError:
    return StartupError(f"--kv-connector lmcache: {reason}", field=_FIELD)
