"""Makes a folder of a GGUF file that is read as it is: configuration, tokenizer and index."""

import os
import shutil
from pathlib import Path
from typing import Any

from pagewire_shared.model_files.folder import GGUF_INDEX_NAME, GGUF_NAME
from pagewire_worker.checkpoint.gguf.index import TensorPlace, write_index
from pagewire_worker.convert.gguf_file import open_gguf


def describe_gguf(file: Path, target: Path, *, is_linked: bool) -> None:
    """Write all that belongs to the model in `file` into `target`, an empty folder.

    Args:
        is_linked: Whether the folder holds a symbolic link to the file. Otherwise it holds the
            file: a hard link, or a copy on another disk.

    Raises:
        StartupError: It is no GGUF file, or holds a model that is not read.
    """
    model = open_gguf(file)
    model.write_texts(target, {**model.config, "quantization_config": {"quant_method": "gguf"}})
    places = {one.name: place_of(one, one.num_heads) for one in model.named_tensors()}
    whole, held = file.resolve(), target / GGUF_NAME
    if is_linked:
        held.symlink_to(whole)
    else:
        try:
            os.link(whole, held)
        except OSError:
            shutil.copyfile(whole, held)
    write_index(target / GGUF_INDEX_NAME, held, places)


def place_of(tensor: Any, num_heads: int = 0) -> TensorPlace:
    """Return the place of a tensor of the package gguf, or of a NamedTensor.

    Args:
        num_heads: Heads whose rows llama.cpp has moved; 0 for none.
    """
    return TensorPlace(
        kind=tensor.tensor_type.name,
        offset=int(tensor.data_offset),
        num_bytes=int(tensor.n_bytes),
        # llama.cpp names the inputs first.
        shape=tuple(int(size) for size in reversed(tensor.shape)),
        num_heads=num_heads,
    )
