"""The process of `pagewire convert`: writes a pickled checkpoint or a GGUF file as safetensors.

torch's `weights_only` unpickler makes tensors and plain containers, and nothing else of a pickle.
One file of the checkpoint is in memory at a time.
"""

import json
import pickle
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_file
from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_shared.model_files.folder import INDEX_NAME, SINGLE_NAME
from pagewire_worker.convert.gguf_file import convert_gguf, find_gguf
from pagewire_worker.convert.gguf_folder import describe_gguf

LINK: Final = "link"
PICKLE_INDEX: Final = "pytorch_model.bin.index.json"
PICKLE_NAMES: Final = ("pytorch_model.bin", "model.bin", "pytorch_model.pt", "model.pt")


def main(arguments: Sequence[str]) -> int:
    """Convert what the first argument names into the folder of the second; return the status.

    A third argument keeps the blocks of a GGUF file: "link" or "copy" says how the folder holds it.
    """
    try:
        source, target = Path(arguments[0]), Path(arguments[1])
        if len(arguments) > 2:
            describe_gguf(source, target, is_linked=arguments[2] == LINK)
            return 0
        file = None if source.is_dir() and has_pickles(source) else find_gguf(source)
        if file is not None:
            convert_gguf(file, target)
        else:
            convert(source, target)
    except StartupError as error:
        print(error.message, file=sys.stderr)
        return 1
    return 0


def convert(source: Path, target: Path) -> None:
    """Write the weights in `source` as safetensors into `target`, an empty folder.

    Raises:
        StartupError: There is no pickled checkpoint, or one that is broken or more than tensors.
    """
    files = pickled_files(source)
    seen: dict[int, str] = {}
    weights: dict[str, str] = {}
    total = 0
    for number, file in enumerate(files, start=1):
        print(f"{file.name} ({number} of {len(files)})", flush=True)
        name = SINGLE_NAME
        if len(files) > 1:
            name = f"model-{number:05}-of-{len(files):05}.safetensors"
        tensors = dict(_apart(read_tensors(file), seen))
        save_file(tensors, target / name, metadata={"format": "pt"})
        weights.update(dict.fromkeys(tensors, name))
        total += sum(tensor.nbytes for tensor in tensors.values())
        if len(files) > 1:
            # Ids of tensors that are gone may come again.
            seen.clear()
    if len(files) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": weights}
        (target / INDEX_NAME).write_text(json.dumps(index, indent=2) + "\n")


def has_pickles(folder: Path) -> bool:
    """Return whether a folder holds a pickled checkpoint; a GGUF file beside it is made of it."""
    return any((folder / name).is_file() for name in (PICKLE_INDEX, *PICKLE_NAMES))


def pickled_files(folder: Path) -> list[Path]:
    """Return the pickles of a checkpoint in order. Raises StartupError without any."""
    index = folder / PICKLE_INDEX
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        except (ValueError, KeyError, AttributeError) as error:
            raise StartupError(f"{index} is broken: {error}") from error
        files = [folder / str(name) for name in names]
        missing = [file.name for file in files if file.parent != folder or not file.is_file()]
        if missing:
            raise StartupError(f"{folder} lacks {missing[0]}, which {PICKLE_INDEX} names")
        return files
    found = [folder / name for name in PICKLE_NAMES if (folder / name).is_file()]
    if not found:
        raise StartupError(f"{folder} has no {PICKLE_NAMES[0]}: there is nothing to convert")
    return found[:1]


def read_tensors(file: Path) -> dict[str, Tensor]:
    """Return the tensors of one pickle. Raises StartupError for anything else in it."""
    try:
        data: Any = torch.load(file, map_location="cpu", weights_only=True, mmap=_is_zip(file))
    except pickle.UnpicklingError as error:
        reason = str(error).strip().splitlines()[-1] if str(error).strip() else "not readable"
        raise StartupError(
            f"{file} is not tensors alone, and what else it holds is not run ({reason[:200]})"
        ) from error
    except (RuntimeError, OSError, EOFError, ValueError, KeyError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise StartupError(f"{file} cannot be read: {reason[:200]}") from error
    if isinstance(data, dict) and isinstance(data.get("state_dict"), dict):
        data = data["state_dict"]
    is_tensors = isinstance(data, dict) and all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in data.items()
    )
    if not is_tensors:
        raise StartupError(f"{file} does not hold tensors by name")
    return dict(data)


def _is_zip(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(2) == b"PK"


def _apart(tensors: dict[str, Tensor], seen: dict[int, str]) -> Iterator[tuple[str, Tensor]]:
    """Yield tensors with memory of their own; of a tied pair, only the first.

    safetensors refuses names that share memory. A model ties such weights itself when it loads.
    """
    for name, tensor in tensors.items():
        whole = tensor.untyped_storage()
        is_view = tensor.nbytes != whole.nbytes()
        if not is_view and whole.data_ptr() in seen and tensor.nbytes:
            continue
        seen[whole.data_ptr()] = name
        yield name, tensor.clone().contiguous() if is_view else tensor.contiguous()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
