"""Checks a folder with an adapter, and the content of one that was received."""

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final

from pagewire_shared.adapters.adapter_config import (
    MAX_CONFIG_BYTES,
    AdapterConfig,
    read_adapter_config,
)
from pagewire_shared.adapters.adapter_error import AdapterError
from pagewire_shared.adapters.content_id import CONFIG_NAME, WEIGHTS_NAME, adapter_id_of
from pagewire_shared.adapters.modules import AdapterModule, pair_tensors
from pagewire_shared.adapters.tensor_header import (
    AdapterBounds,
    StoredTensor,
    read_tensor_header,
)

_CHUNK: Final = 1 << 20
_PICKLE: Final = "adapter_model.bin"


@dataclass(frozen=True, slots=True)
class AdapterContent:
    """The files of one adapter, whose hash is its identity.

    Attributes:
        config: Content of adapter_config.json.
        weights: Content of adapter_model.safetensors.
    """

    config: bytes
    weights: bytes

    @property
    def num_bytes(self) -> int:
        """Bytes of both."""
        return len(self.config) + len(self.weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSummary:
    """What an adapter is made of.

    Attributes:
        adapter_id: SHA-256 of its content, 32 bytes.
        config: Its settings.
        modules: The matrices that it adapts, by name.
        copies: Matrices of the model itself that its file has, by the names of their modules.
        num_bytes: Bytes of its files.
    """

    adapter_id: bytes
    config: AdapterConfig
    modules: tuple[AdapterModule, ...]
    copies: Mapping[str, StoredTensor]
    num_bytes: int

    @property
    def rank(self) -> int:
        """The largest rank of a module."""
        return max(module.rank for module in self.modules)

    @property
    def targets(self) -> tuple[str, ...]:
        """Last names of the adapted modules and parameters, such as q_proj, in order."""
        names = {one.name.rpartition(".")[2] for one in self.modules if one.num_experts is None}
        return tuple(sorted(names | self.config.stacks))


def check_adapter(
    folder: Path,
    bounds: AdapterBounds,
    *,
    root: Path | None = None,
    adapter_id: bytes | None = None,
) -> AdapterSummary:
    """Return what the adapter in `folder` is made of; its data is hashed, and not kept.

    Args:
        adapter_id: Its identity where it is known: its data is not read then.
        root: Folder that symbolic links may lead to, such as that of a hub's cache; None for
            `folder` alone.

    Raises:
        AdapterError: A file is missing, leaves the folder, is too large or broken, or needs what
            is not supported.
    """
    root = (root or folder).resolve()
    with _open(folder, CONFIG_NAME, root) as (file, size):
        config_bytes = _read_config(file, size)
    config = read_adapter_config(config_bytes, max_rank=bounds.max_rank)
    # Unlike those of Path, these raise nothing.
    if not os.path.exists(folder / WEIGHTS_NAME) and os.path.exists(folder / _PICKLE):
        raise AdapterError(f"{_PICKLE} is a pickle: only {WEIGHTS_NAME} is read", _PICKLE)
    with _open(folder, WEIGHTS_NAME, root) as (file, size):
        modules, copies = pair_tensors(config, read_tensor_header(file, size, bounds))
        if adapter_id is None:
            file.seek(0)
            adapter_id = adapter_id_of(config_bytes, _pieces(file, size))
    return AdapterSummary(
        adapter_id=adapter_id,
        config=config,
        modules=modules,
        copies=copies,
        num_bytes=len(config_bytes) + size,
    )


def read_adapter_files(
    folder: Path, bounds: AdapterBounds, *, root: Path | None = None
) -> AdapterContent:
    """Return the content of both files, at most as much as `bounds` allow. Raises AdapterError."""
    root = (root or folder).resolve()
    with _open(folder, CONFIG_NAME, root) as (file, size):
        config = _read_config(file, size)
    with _open(folder, WEIGHTS_NAME, root) as (file, size):
        if size > bounds.max_bytes:
            raise AdapterError(
                f"{WEIGHTS_NAME}: {size} bytes are more than {bounds.max_bytes}", WEIGHTS_NAME
            )
        weights = file.read(size)
    if len(weights) != size:
        raise AdapterError("a file became shorter while it was read", WEIGHTS_NAME)
    return AdapterContent(config, weights)


def check_content(
    content: AdapterContent, bounds: AdapterBounds, *, adapter_id: bytes | None = None
) -> AdapterSummary:
    """Return what the adapter with this content is made of. Raises AdapterError.

    Args:
        adapter_id: Its identity; None where it is not known yet.
    """
    config, weights = content.config, content.weights
    settings = read_adapter_config(config, max_rank=bounds.max_rank)
    header = read_tensor_header(BytesIO(weights), len(weights), bounds)
    modules, copies = pair_tensors(settings, header)
    return AdapterSummary(
        adapter_id=adapter_id or adapter_id_of(config, weights),
        config=settings,
        modules=modules,
        copies=copies,
        num_bytes=content.num_bytes,
    )


@contextmanager
def _open(folder: Path, name: str, root: Path) -> Iterator[tuple[BinaryIO, int]]:
    path = folder / name
    try:
        target = path.resolve(strict=True)
        if not target.is_relative_to(root) and not target.is_relative_to(folder.resolve()):
            raise AdapterError(f"{name}: it is a link that leaves the folder", name)
        # Without O_NONBLOCK a named pipe would hold up the caller.
        descriptor = os.open(target, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise AdapterError(f"{name} cannot be read: {reason}", name) from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise AdapterError(f"{name} is not a regular file", name)
    with os.fdopen(descriptor, "rb") as file:
        yield file, found.st_size


def _read_config(file: BinaryIO, size: int) -> bytes:
    if size > MAX_CONFIG_BYTES:
        raise AdapterError(
            f"{CONFIG_NAME}: {size} bytes are more than {MAX_CONFIG_BYTES}", CONFIG_NAME
        )
    return b"".join(_pieces(file, size))


def _pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    left = size
    while left:
        piece = file.read(min(left, _CHUNK))
        if not piece:
            raise AdapterError("a file became shorter while it was read", WEIGHTS_NAME)
        left -= len(piece)
        yield piece
