"""Finds a server on this machine that `generate` and `chat` can use."""

import sys
from dataclasses import fields
from typing import Any, Final

from pagewire.client.blocking_client import Client
from pagewire.client.endpoint import grpc_address
from pagewire.config import ServeConfig
from pagewire_shared.errors import PagewireError, UnavailableError
from pagewire_shared.process.settings import LoadedSettings

DEFAULT_SERVER: Final = "127.0.0.1:8000"
"""Where `pagewire serve` listens by default."""
CONNECT_SECONDS: Final = 1.0
_OF_ANY_SERVER: Final = frozenset({"model", "log_level", "log_format", "watchdog"})
"""Settings of `serve` that leave the choice of the server open."""


def running_server(loaded: LoadedSettings[Any]) -> tuple[str, str] | None:
    """Return the gRPC address and the model of a server that fits; None for none.

    A server fits that listens at the default port and serves the model that is named, or its first
    one where none is. A flag that shapes a deployment, such as --dtype, asks for an own one.
    """
    config = loaded.config
    shaping = {item.name for item in fields(ServeConfig)} - _OF_ANY_SERVER
    if not config.use_running or any(loaded.sources[name] != "default" for name in shaping):
        return None
    try:
        address = grpc_address(DEFAULT_SERVER)
    except UnavailableError:
        return None
    try:
        with Client(address, api_key=config.server_api_key) as client:
            client.wait_connected(CONNECT_SECONDS)
            served = [model.name for model in client.list_models() if model.is_ready]
    except PagewireError as error:
        print(f"pagewire: not using the server at {address}: {error.message}", file=sys.stderr)
        return None
    wanted = config.model[0] if config.model else (served[0] if served else None)
    return (address, wanted) if wanted in served else None
