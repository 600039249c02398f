"""`pagewire convert IN OUT`: turns a pickled checkpoint or a GGUF file into safetensors."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pagewire.converter import run_converter
from pagewire_shared.errors import StartupError
from pagewire_shared.model_files.folder import INDEX_NAME, SINGLE_NAME
from pagewire_shared.process.flags import HintingParser

DESCRIPTION = (
    "Write the checkpoint IN as safetensors into the new folder OUT. IN is a folder whose weights"
    " are pickles (pytorch_model.bin), or a GGUF file of llama, qwen2 or qwen3, which becomes"
    " bfloat16 or, with --keep-blocks, stays as it is. A process of its own reads IN, and makes"
    " nothing of pickles but tensors."
)
_COPIED: Final = ("*.json", "*.model", "*.txt", "*.jinja", "*.tiktoken")


def run(name: str, argv: Sequence[str]) -> int:
    """Convert; print the name of the new folder. Raises StartupError when that is not possible."""
    parser = HintingParser(prog=f"pagewire {name}", description=DESCRIPTION)
    parser.add_argument("IN", help="folder of the checkpoint, or a GGUF file")
    parser.add_argument("OUT", help="folder to make")
    parser.add_argument(
        "--keep-blocks",
        action="store_true",
        help="of a GGUF file: OUT holds it as it is, with configuration and tokenizer; pagewire"
        " serve FILE.gguf does the same in the cache",
    )
    options = parser.parse_args(argv)
    source, target = Path(options.IN).expanduser(), Path(options.OUT).expanduser()
    is_gguf = source.suffix == ".gguf" and source.is_file()
    if not source.is_dir() and not is_gguf:
        raise StartupError(f"IN: there is neither a folder nor a GGUF file {source}", field="IN")
    if (source / SINGLE_NAME).is_file() or (source / INDEX_NAME).is_file():
        raise StartupError(f"IN: {source} has safetensors already", field="IN")
    if options.keep_blocks and not is_gguf:
        raise StartupError(f"--keep-blocks: {source} is not a GGUF file", field="keep_blocks")
    if target.exists():
        raise StartupError(f"OUT: {target} exists; name a new folder", field="OUT")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Beside the target, so that the last step is a rename: OUT is whole or not there.
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".convert-") as place:
            made = Path(place) / "model"
            made.mkdir()
            run_converter(source, made, *(["copy"] if options.keep_blocks else []))
            # The configuration of a GGUF file was made of the file.
            if not (made / "config.json").is_file():
                _copy_texts(source, made)
            made.rename(target)
    except OSError as error:
        raise StartupError(f"OUT: {target}: {error.strerror or error}", field="OUT") from error
    print(f"{target}: pagewire serve {target}")
    return 0


def _copy_texts(source: Path, target: Path) -> None:
    for pattern in _COPIED:
        for file in source.glob(pattern):
            if file.is_file() and not file.name.endswith(".bin.index.json"):
                shutil.copyfile(file, target / file.name)
