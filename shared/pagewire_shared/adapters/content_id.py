"""The identity of an adapter: a hash over its two files, so that other content has another id."""

import hashlib
from collections.abc import Iterable
from typing import Final

ADAPTER_ID_BYTES: Final = 32
"""Length of an identity."""

CONFIG_NAME: Final = "adapter_config.json"
"""The file with the settings."""

WEIGHTS_NAME: Final = "adapter_model.safetensors"
"""The file with the tensors."""

_DOMAIN: Final = b"pagewire adapter 1\n"


def adapter_id_of(config: bytes, weights: bytes | Iterable[bytes]) -> bytes:
    """Return the identity of an adapter, 32 bytes.

    Args:
        config: Content of adapter_config.json.
        weights: Content of adapter_model.safetensors, whole or in pieces.
    """
    digest = begin_id(len(config))
    digest.update(config)
    for piece in (weights,) if isinstance(weights, bytes | bytearray | memoryview) else weights:
        digest.update(piece)
    return digest.digest()


def begin_id(num_config_bytes: int) -> "hashlib._Hash":
    """Return a digest that takes the content of both files in order, and is the identity then.

    Args:
        num_config_bytes: Size of adapter_config.json.
    """
    digest = hashlib.sha256(_DOMAIN)
    digest.update(num_config_bytes.to_bytes(8, "little"))
    return digest
