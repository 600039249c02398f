"""Maps `--kv-connector` to a connector: Pagewire's own, or a class of an installed module."""

import importlib

from pagewire_shared.errors import StartupError
from pagewire_worker.offload.connector import KvConnector
from pagewire_worker.offload.kv_store_client import KvStoreConnector

_FIELD = "kv_connector"
_METHODS = ("register", "put", "get", "close")


def make_connector(name: str) -> KvConnector:
    """Return the connector `name`: "pagewire", or MODULE:CLASS, called without arguments.

    Raises:
        StartupError: There is no such class, or it is not a connector.
    """
    if name == "pagewire":
        return KvStoreConnector()
    module_name, separator, class_name = name.partition(":")
    if not separator or not module_name or not class_name:
        raise StartupError(f"--kv-connector: {name!r} is no MODULE:CLASS", field=_FIELD)
    try:
        made = getattr(importlib.import_module(module_name), class_name)()
    except (ImportError, AttributeError, TypeError) as error:
        raise StartupError(f"--kv-connector: {name}: {error}", field=_FIELD) from error
    lacking = [method for method in _METHODS if not callable(getattr(made, method, None))]
    if lacking:
        raise StartupError(f"--kv-connector: {name} has no {', '.join(lacking)}", field=_FIELD)
    connector: KvConnector = made
    return connector
