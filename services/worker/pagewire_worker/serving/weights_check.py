"""Checks the weights of an update, while the worker computes with others.

The new ones have to fit in place of the old: the same model, the same tensors with the same shapes.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from safetensors import SafetensorError, safe_open

from pagewire_shared.errors import InvalidRequestError, PagewireError, StartupError
from pagewire_shared.identity.ids import tokenizer_fingerprint
from pagewire_shared.identity.model_files import find_files
from pagewire_shared.model_files.config import read_config
from pagewire_shared.model_files.folder import GGUF_INDEX_NAME, INDEX_NAME, SINGLE_NAME
from pagewire_shared.weights.version import WeightsSource
from pagewire_worker.config import WorkerConfig
from pagewire_worker.loading.replica_shape import config_of, resolve_shape

MAX_NAMED = 5
"""Tensors that an error names."""

TIED = "lm_head.weight"
"""Not stored by every writer, where it is the same as the embeddings."""


def check_weights(config: WorkerConfig, current: WeightsSource, path: str) -> bytes:
    """Return the fingerprint of the weights in a folder, 32 bytes; reads all of them.

    Args:
        config: The settings of the start; see ReplicaMemory.started.
        current: Where the weights are from that the worker has.
        path: The folder; empty for the model of the start.

    Raises:
        InvalidRequestError: They cannot be loaded in place of the current ones.
    """
    _check_kind(config)
    mine = config_of(config, current)
    try:
        theirs = config_of(config, WeightsSource(path=path))
        if path and not Path(path).is_dir():
            raise StartupError(f"{path} is no folder of this host")
        shape = resolve_shape(theirs)
        if shape.device.type != "cpu":
            raise _refused("on CUDA devices: captured graphs have the addresses of the tensors")
        known = resolve_shape(mine, is_hashed=False).model
        if replace(shape.model, dtype=known.dtype) != known:
            raise StartupError("config.json is that of another model")
        old = find_files(mine, mine.model, has_weights=True)
        new = find_files(theirs, theirs.model, has_weights=True)
        _check_tokenizer(new.folder, old.tokenizer_folder)
        _check_tensors(new.folder, old.folder)
        return shape.fingerprint
    except InvalidRequestError:
        raise
    except (PagewireError, OSError, ValueError, SafetensorError) as error:
        text = str(error).removeprefix("--model: ")
        raise InvalidRequestError(f"path: {text}", field="path") from error


def _check_kind(config: WorkerConfig) -> None:
    if config.load_format != "auto":
        raise _refused("with --load-format dummy")
    if config.rank_hosts > 1:
        raise _refused("with --rank-hosts")


def _refused(what: str) -> InvalidRequestError:
    return InvalidRequestError(f"weights are not updated {what}; start the worker again")


def _check_tokenizer(new: Path, known: Path) -> None:
    """A folder that has a tokenizer has that of the frontends."""
    is_there = (new / "tokenizer.json").is_file()
    if is_there and tokenizer_fingerprint(new) != tokenizer_fingerprint(known):
        raise StartupError(f"{new}/tokenizer.json is not the tokenizer of the model")


def _check_tensors(new: Path, old: Path) -> None:
    if (old / GGUF_INDEX_NAME).is_file() or (new / GGUF_INDEX_NAME).is_file():
        raise _refused("of GGUF files")
    wanted, found = dict(_tensors(old)), dict(_tensors(new))
    missing = wanted.keys() - found.keys()
    if read_config(new).get("tie_word_embeddings"):
        missing = {name for name in missing if name != TIED}
    if missing:
        raise StartupError(f"{new} lacks {_some(missing)}")
    if unknown := {name for name in found.keys() - wanted.keys() if name != TIED}:
        raise StartupError(f"{new} has {_some(unknown)}, which the model does not have")
    for name, shape in found.items():
        if name in wanted and shape != wanted[name]:
            raise StartupError(
                f"{new}: tensor {name} has shape {shape}, the model has {wanted[name]}"
            )


def _tensors(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Yield the name and shape of each tensor, from the headers of the files."""
    index = folder / INDEX_NAME
    names = {SINGLE_NAME}
    if index.is_file():
        names = set(json.loads(index.read_bytes())["weight_map"].values())
    for name in sorted(names):
        with safe_open(folder / name, framework="numpy") as file:
            for tensor in file.keys():  # noqa: SIM118  # no mapping
                yield tensor, file.get_slice(tensor).get_shape()


def _some(names: set[str]) -> str:
    shown = sorted(names)[:MAX_NAMED]
    more = len(names) - len(shown)
    return "the tensor " + ", ".join(shown) + (f" and {more} more" if more else "")
