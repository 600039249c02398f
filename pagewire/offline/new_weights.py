"""Gives the workers of an LLM other weights."""

from collections.abc import Iterable
from typing import Any

from pagewire.client.weights_client import stream_weights, update_weights
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.weights.version import parse_update_mode


async def exchange_weights(
    address: str,
    path: str | None,
    tensors: Iterable[tuple[str, Any]] | None,
    *,
    model: str,
    version: str,
    mode: str,
) -> None:
    """Give the workers of a model the weights of a folder, or tensors; see LLM.update_weights."""
    if (path is None) == (tensors is None):
        raise InvalidRequestError("name a path or give tensors, not both", field="path")
    settings: dict[str, Any] = {"model": model, "version": version, "mode": parse_update_mode(mode)}
    if tensors is not None:
        await stream_weights(address, tensors, **settings)
    else:
        await update_weights(address, str(path), **settings)
