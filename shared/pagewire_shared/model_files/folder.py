"""Checks that a folder holds a model that can be served: configuration, tokenizer and weights.

The command line asks before it starts a process; worker and frontend ask again, in the same words.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pagewire_shared.errors import StartupError

SINGLE_NAME: Final = "model.safetensors"
INDEX_NAME: Final = "model.safetensors.index.json"
GGUF_NAME: Final = "model.gguf"
GGUF_INDEX_NAME: Final = "model.gguf.index.json"
"""Beside a GGUF file that is read as it is: its tensors under the names of transformers."""
TOKENIZER_FILES: Final = (
    *("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"),
    *("spiece.model", "sentencepiece.bpe.model", "tekken.json"),
)
"""Files that a tokenizer is made of; any of them will do."""
_PICKLES: Final = ("*.bin", "*.pt", "*.pth", "*.ckpt")


def check_place(path: Path, shown: str) -> None:
    """Raise StartupError unless `path` is a folder with a config.json; `shown` names it."""
    if not path.exists():
        raise _fault(f"{shown} does not exist")
    if not path.is_dir():
        raise _fault(f"{shown} is a file; name the folder of the model")
    if (path / "config.json").is_file():
        return
    if (path / "adapter_config.json").is_file():
        raise _fault(_ADAPTER.format(shown))
    if gguf := _first(path, ["*.gguf"]):
        raise _fault(f"{shown} holds {gguf}: name the file, {shown}/{gguf}")
    raise _fault(f"{shown} has no config.json")


def check_weights(folder: Path, shown: str) -> None:
    """Raise StartupError unless `folder` holds safetensors."""
    if (folder / "adapter_config.json").is_file():
        raise _fault(_ADAPTER.format(shown))
    if any((folder / name).is_file() for name in (SINGLE_NAME, INDEX_NAME, GGUF_INDEX_NAME)):
        return
    if pickle := _first(folder, _PICKLES):
        raise _fault(
            f"{shown} has no {SINGLE_NAME}; {pickle} is a pickle, which can run code and is not"
            f" read: pagewire convert {shown} OUT writes safetensors"
        )
    if gguf := _first(folder, ["*.gguf"]):
        raise _fault(f"{shown} has no {SINGLE_NAME}, but {gguf}: name the file, {shown}/{gguf}")
    raise _fault(f"{shown} has neither {SINGLE_NAME} nor {INDEX_NAME}")


def check_tokenizer(folder: Path, shown: str) -> None:
    """Raise StartupError unless `folder` holds the files of a tokenizer."""
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise _fault(
            f"{shown} has no tokenizer (no tokenizer.json, tokenizer.model or vocab.json);"
            " copy it from where the weights came from"
        )


_ADAPTER: Final = (
    "{} is an adapter (LoRA): name its base model, and the adapter with --lora-modules NAME=PATH"
)


def _first(folder: Path, patterns: Sequence[str]) -> str:
    """Return the first file name by alphabet, or ""."""
    return min((path.name for each in patterns for path in folder.glob(each)), default="")


def _fault(text: str) -> StartupError:
    return StartupError(f"--model: {text}", field="model")
