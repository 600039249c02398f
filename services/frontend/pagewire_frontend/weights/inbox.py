"""Writes checkpoints that come tensor by tensor into private folders.

A checkpoint is written under a hidden name, and gets its own once it is complete. Once workers
serve it, those before it are removed; one that they do not take is removed, too.
"""

import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from pagewire_frontend.weights.shards import Tensor, check_tensor, header_of
from pagewire_shared.errors import InvalidRequestError, OverloadedError, UnavailableError
from pagewire_shared.model_files.folder import INDEX_NAME
from pagewire_shared.process.sizes import format_size

MAX_TENSORS: Final = 65536
LEFTOVER_SECONDS: Final = 3600.0
"""Age at which an incomplete checkpoint is that of a process that has ended."""
MAX_COPIED_BYTES: Final = 64 * 1024 * 1024
"""Largest file of the model that goes with new weights."""

_INCOMPLETE: Final = ".incoming-"
_WEIGHTS: Final = ("*.safetensors", "*.index.json", "*.bin", "*.gguf", "*.pt", "*.pth")


class WeightsInbox:
    """Receives one checkpoint at a time.

    Args:
        folder: Where checkpoints are written; workers find them under the same path.
        max_bytes: Most bytes of a checkpoint.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder.absolute()
        self._max_bytes = max_bytes
        self._is_busy = False

    @contextmanager
    def receive(self, model: str, files: Path) -> "Iterator[IncomingCheckpoint]":
        """Yield a checkpoint to fill; what is not complete at the end is removed.

        Args:
            files: Folder of the model; all but its weights goes with the new ones.

        Raises:
            OverloadedError: Another checkpoint is under way.
        """
        if self._is_busy:
            raise OverloadedError("another checkpoint is being received")
        self._is_busy = True
        incoming = None
        try:
            incoming = IncomingCheckpoint(self._folder, _slug(model), files, self._max_bytes)
            yield incoming
        finally:
            self._is_busy = False
            if incoming is not None:
                incoming.close()

    def remove_others(self, model: str, kept: Path) -> None:
        """Remove the complete checkpoints of `model` but one."""
        for folder in self._folder.glob(f"{_slug(model)}-*"):
            if folder != kept:
                shutil.rmtree(folder, ignore_errors=True)


class IncomingCheckpoint:
    """One checkpoint on its way. Its methods write files; they run in a thread, one at a time."""

    def __init__(self, parent: Path, slug: str, files: Path, max_bytes: int) -> None:
        self._slug = slug
        self._files = files
        self._parent = parent
        self._max_bytes = max_bytes
        self._folder: Path | None = None
        self._complete: Path | None = None
        self._file_of: dict[str, str] = {}
        self._shard: BinaryIO | None = None
        self._num_left = self._num_bytes = 0

    def open(self) -> None:
        """Make the folder. Raises UnavailableError."""
        try:
            self._parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _remove_leftovers(self._parent)
            folder = self._parent / f"{_INCOMPLETE}{uuid.uuid4().hex}"
            folder.mkdir(mode=0o700)
            self._folder = folder
            _copy_files(self._files, folder)
        except OSError as error:
            raise UnavailableError(f"--weights-dir cannot be written: {error}") from error

    def write(self, tensors: Sequence[Tensor], data: bytes) -> None:
        """Begin tensors, and take the next bytes.

        Raises:
            InvalidRequestError: A tensor makes no sense or comes twice, data are missing before it,
                or there are more bytes than tensors or than may be.
            UnavailableError: The disk is full.
        """
        assert self._folder is not None, "open comes first"
        try:
            if tensors:
                self._begin(tensors)
            self._take(data)
        except OSError as error:
            raise UnavailableError(f"--weights-dir cannot be written: {error}") from error

    def finish(self, num_tensors: int) -> Path:
        """Complete the checkpoint; return its folder. Raises InvalidRequestError."""
        assert self._folder is not None, "open comes first"
        if self._num_left or num_tensors != len(self._file_of) or not num_tensors:
            raise InvalidRequestError(
                f"end.num_tensors is {num_tensors}; {len(self._file_of)} tensors came, of which "
                f"{self._num_left} bytes are missing",
                field="end.num_tensors",
            )
        try:
            self._close_shard()
            index = {"metadata": {"total_size": self._num_bytes}, "weight_map": self._file_of}
            (self._folder / INDEX_NAME).write_text(json.dumps(index))
            complete = self._parent / f"{self._slug}-{time.time_ns()}-{uuid.uuid4().hex[:8]}"
            self._folder.rename(complete)
        except OSError as error:
            raise UnavailableError(f"--weights-dir cannot be written: {error}") from error
        self._complete, self._folder = complete, None
        return complete

    def close(self) -> None:
        """Remove what is not complete."""
        if self._shard is not None:
            self._shard.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def remove(self) -> None:
        """Remove a complete checkpoint that no worker serves."""
        if self._complete is not None:
            shutil.rmtree(self._complete, ignore_errors=True)

    def _begin(self, tensors: Sequence[Tensor]) -> None:
        if self._num_left:
            raise InvalidRequestError(
                f"tensors begin where {self._num_left} bytes of earlier ones are missing",
                field="bucket.tensors",
            )
        self._close_shard()
        assert self._folder is not None
        name = f"part-{len(self._file_of):05d}.safetensors"
        for tensor in tensors:
            if check_tensor(tensor).name in self._file_of:
                raise InvalidRequestError(f"{tensor.name} comes twice", field="tensors.name")
            self._file_of[tensor.name] = name
        if len(self._file_of) > MAX_TENSORS:
            raise InvalidRequestError(
                f"a checkpoint has at most {MAX_TENSORS} tensors", field="bucket.tensors"
            )
        self._num_left = sum(tensor.num_bytes for tensor in tensors)
        self._num_bytes += self._num_left
        if self._num_bytes > self._max_bytes:
            raise InvalidRequestError(
                f"the checkpoint has more than {format_size(self._max_bytes)}, --weights-dir-bytes",
                field="bucket.tensors",
            )
        self._shard = (self._folder / name).open("xb")
        self._shard.write(header_of(tensors))

    def _take(self, data: bytes) -> None:
        if len(data) > self._num_left:
            raise InvalidRequestError(
                f"data has {len(data)} bytes where {self._num_left} are missing",
                field="bucket.data",
            )
        if data:
            assert self._shard is not None
            self._shard.write(data)
            self._num_left -= len(data)

    def _close_shard(self) -> None:
        if self._shard is not None:
            self._shard.close()
            self._shard = None


def _slug(model: str) -> str:
    """Return a name for the folders of a model: its own may hold any character."""
    return "weights-" + hashlib.sha256(model.encode()).hexdigest()[:12]


def _remove_leftovers(parent: Path) -> None:
    for folder in parent.glob(f"{_INCOMPLETE}*"):
        if time.time() - folder.stat().st_mtime > LEFTOVER_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


def _copy_files(source: Path, target: Path) -> None:
    """Copy what is no weights, such as config.json."""
    ignored = shutil.ignore_patterns(*_WEIGHTS)

    def left_out(folder: str, names: list[str]) -> set[str]:
        paths = {name: Path(folder, name) for name in names}
        large = {
            name
            for name, path in paths.items()
            if path.is_file() and path.stat().st_size > MAX_COPIED_BYTES
        }
        return {*ignored(folder, names), *large}

    shutil.copytree(source, target, ignore=left_out, dirs_exist_ok=True)
    os.chmod(target, 0o700)
