"""Reads which connector a worker uses, and its settings, from flags with our names or vLLM's."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from pagewire_shared.errors import StartupError

OWN: Final = "pagewire"
MOONCAKE: Final = "mooncake"
LMCACHE: Final = "lmcache"

_FIELD: Final = "kv_transfer_config"
_VLLM_NAMES: Final = {"MooncakeStoreConnector": MOONCAKE, "LMCacheConnectorV1": LMCACHE}
_HINTS: Final = {
    "NixlConnector": "workers move blocks themselves: --prefill-workers, --kv-transport nixl",
    "MooncakeConnector": "workers move blocks: --prefill-workers, --kv-transport mooncake",
    "P2pNcclConnector": "workers move blocks themselves: --prefill-workers, --decode-workers",
    "OffloadingConnector": "blocks go to the KV store that is started here: --kvstore-memory",
    "SharedStorageConnector": "blocks go to the KV store's disk: --kvstore-disk-path",
}
_KEYS: Final = ("kv_connector", "kv_role", "kv_connector_extra_config")
_UNUSED: Final = frozenset(
    (
        *("engine_id", "kv_buffer_device", "kv_buffer_size", "kv_ip", "kv_load_failure_policy"),
        *("kv_parallel_size", "kv_port", "kv_rank"),
    )
)
"""Of vLLM's object: they describe its own workers."""


@dataclass(frozen=True, slots=True)
class ConnectorChoice:
    """The connector of a worker.

    Attributes:
        name: "pagewire", "mooncake", "lmcache" or MODULE:CLASS.
        settings: Settings of the connector, by the names of the other project.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)


class ConnectorFlags(Protocol):
    """The settings of a worker that this module reads."""

    @property
    def kv_connector(self) -> str: ...
    @property
    def kv_transfer_config(self) -> str: ...


def choice_of(flags: ConnectorFlags) -> ConnectorChoice:
    """Return the choice. Raises StartupError for flags that contradict each other."""
    if not flags.kv_transfer_config:
        return ConnectorChoice(flags.kv_connector)
    choice = read_transfer_config(flags.kv_transfer_config)
    if flags.kv_connector not in (OWN, choice.name):
        raise StartupError(
            f"--kv-transfer-config: names {choice.name}, and --kv-connector {flags.kv_connector}",
            field=_FIELD,
        )
    return choice


def has_outside_store(flags: ConnectorFlags) -> bool:
    """Whether the connector has a store of its own, of another project. Raises StartupError."""
    return choice_of(flags).name in (MOONCAKE, LMCACHE)


def parse_transfer_config(text: str) -> str:
    """Return `text` if it is a right value of --kv-transfer-config. Raises StartupError."""
    if text:
        read_transfer_config(text)
    return text


def read_transfer_config(text: str) -> ConnectorChoice:
    """Return the choice in a JSON object with vLLM's names. Raises StartupError."""
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise _wrong("must be a JSON object")
    unknown = sorted(set(given) - set(_KEYS) - _UNUSED)
    if unknown:
        raise _wrong(f"{unknown[0]} is unknown; there are {', '.join(_KEYS)}")
    if given.get("kv_role", "kv_both") != "kv_both":
        raise _wrong("kv_role: kv_both is served; --prefill-workers and --decode-workers split")
    name = given.get("kv_connector", OWN)
    if name in _HINTS:
        raise _wrong(f"kv_connector {name}: {_HINTS[name]}")
    settings = given.get("kv_connector_extra_config") or {}
    if not isinstance(name, str) or not isinstance(settings, dict):
        raise _wrong("kv_connector is a text, and kv_connector_extra_config an object")
    name = _VLLM_NAMES.get(name, name)
    if name not in (OWN, MOONCAKE, LMCACHE) and ":" not in name:
        raise _wrong(f"kv_connector {name} is unknown; there are {', '.join(_VLLM_NAMES)}")
    if settings and name not in (MOONCAKE, LMCACHE):
        raise _wrong(f"kv_connector_extra_config: {name} takes no settings")
    return ConnectorChoice(name, settings)


def _wrong(reason: str) -> StartupError:
    return StartupError(reason, field=_FIELD)
