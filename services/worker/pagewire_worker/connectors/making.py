"""Makes the connector of a worker, and names the outside store that it reaches."""

import importlib
from typing import Any, Final, Protocol

from pagewire_shared.errors import StartupError
from pagewire_worker.connectors.lmcache import LmcacheConnector
from pagewire_worker.connectors.lmcache_settings import read_lmcache_settings
from pagewire_worker.connectors.mooncake import MooncakeConnector
from pagewire_worker.connectors.mooncake_settings import read_mooncake_settings
from pagewire_worker.connectors.transfer_config import (
    LMCACHE,
    MOONCAKE,
    OWN,
    ConnectorChoice,
    choice_of,
)
from pagewire_worker.host.key_file import read_keys
from pagewire_worker.offload.connector import KvConnector
from pagewire_worker.offload.kv_store_client import KvStoreConnector
from pagewire_worker.offload.sealed_connector import SealedConnector

_FIELD: Final = "kv_connector"
_METHODS: Final = ("register", "put", "get", "close")


class OffloadSettings(Protocol):
    """The settings of a worker that this module reads."""

    @property
    def kv_offload(self) -> str: ...
    @property
    def kv_connector(self) -> str: ...
    @property
    def kv_transfer_config(self) -> str: ...
    @property
    def kv_key_file(self) -> str: ...


def connector_of(settings: OffloadSettings) -> KvConnector | None:
    """Return a worker's connector, or None where it offloads nothing. Raises StartupError."""
    if settings.kv_offload == "off":
        return None
    connector = make_connector(choice_of(settings))
    if not settings.kv_key_file:
        return connector
    return SealedConnector(connector, read_keys(settings.kv_key_file))


def outside_store_of(settings: OffloadSettings) -> str:
    """Return the name of the outside store that a worker reaches, or "". Raises StartupError."""
    if settings.kv_offload == "off":
        return ""
    choice = choice_of(settings)
    if choice.name == MOONCAKE:
        return read_mooncake_settings(choice.settings).store_name
    if choice.name == LMCACHE:
        return read_lmcache_settings(choice.settings).store_name
    return "" if choice.name == OWN else outside_store(_class_of(choice.name))


def places_copies(settings: OffloadSettings) -> bool:
    """Return whether a worker places blocks on several stores; other connectors do not."""
    return settings.kv_offload != "off" and choice_of(settings).name == OWN


def outside_store(connector: object) -> str:
    """Return the name of the outside store of a connector or of its class; "" for none."""
    name = getattr(connector, "outside_store", "")
    return name if isinstance(name, str) else ""


def make_connector(choice: ConnectorChoice) -> KvConnector:
    """Return a connector; MODULE:CLASS is called without arguments.

    Raises:
        StartupError: There is no such class, it is not a connector, or its settings are wrong.
    """
    if choice.name == OWN:
        return KvStoreConnector()
    if choice.name == MOONCAKE:
        return MooncakeConnector(read_mooncake_settings(choice.settings))
    if choice.name == LMCACHE:
        return LmcacheConnector(read_lmcache_settings(choice.settings))
    try:
        made = _class_of(choice.name)()
    except (AttributeError, TypeError) as error:
        raise StartupError(f"--kv-connector: {choice.name}: {error}", field=_FIELD) from error
    lacking = [method for method in _METHODS if not callable(getattr(made, method, None))]
    if lacking:
        raise StartupError(
            f"--kv-connector: {choice.name} has no {', '.join(lacking)}", field=_FIELD
        )
    connector: KvConnector = made
    return connector


def _class_of(name: str) -> Any:
    module_name, separator, class_name = name.partition(":")
    if not separator or not module_name or not class_name:
        raise StartupError(f"--kv-connector: {name!r} is no MODULE:CLASS", field=_FIELD)
    try:
        return getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise StartupError(f"--kv-connector: {name}: {error}", field=_FIELD) from error
