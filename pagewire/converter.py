"""Runs the process that converts checkpoints, and keeps folders made of GGUF files.

Such a folder holds configuration, tokenizer, an index of the tensors and a link to the file. It is
made once, by the package gguf and transformers, in some seconds.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from pagewire_shared.errors import StartupError
from pagewire_shared.model_files.folder import GGUF_NAME

MAGIC: Final = b"GGUF"
LAYOUT: Final = 2
"""Raised when folders of an earlier version cannot be used."""


def run_converter(source: Path, target: Path, *how: str) -> None:
    """Convert `source` into the empty folder `target`. Raises StartupError with the reason.

    Args:
        how: "link" or "copy" to keep the blocks of a GGUF file.
    """
    # -P keeps files of the current folder from hiding installed packages.
    command = [sys.executable, "-P", "-m", "pagewire_worker.convert", str(source), str(target)]
    done = subprocess.run(
        [*command, *how], stdout=2, stderr=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        reason = lines[-1] if lines else f"the process ended with {done.returncode}"
        raise StartupError(f"IN: {reason}", field="IN")


def gguf_folder(file: Path) -> Path:
    """Return the folder that a GGUF file is served from; make it where it is missing.

    Raises:
        StartupError: The file cannot be read or served, or the cache cannot be written.
    """
    file = file.resolve()
    with file.open("rb") as opened:
        if opened.read(len(MAGIC)) != MAGIC:
            raise StartupError(f"--model: {file} is no GGUF file", field="model")
    found = file.stat()
    facts = f"{LAYOUT} {file} {found.st_size} {found.st_mtime_ns}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pagewire" / "gguf"
    folder = cache / hashlib.sha256(facts.encode()).hexdigest()[:24] / file.stem
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".convert-") as place:
            made = Path(place) / "model"
            made.mkdir()
            run_converter(file, made, "link")
            if not folder.is_dir():
                made.rename(folder)
        _remove_stale(cache, file, folder)
    except OSError as error:
        if folder.is_dir():
            return folder  # another process was faster
        raise StartupError(
            f"--model: {folder}: {error.strerror or error}", field="model"
        ) from error
    except StartupError as error:
        message = error.message.removeprefix("IN: ")
        raise StartupError(f"--model: {message}", field="model") from error
    return folder


def _remove_stale(cache: Path, file: Path, kept: Path) -> None:
    """Remove folders of earlier contents of `file`, and of files that are gone.

    So the cache holds at most one folder per GGUF file. A server that still uses such a folder
    could not start a worker with it: the file has changed.
    """
    for link in cache.glob(f"*/*/{GGUF_NAME}"):
        is_stale = link.parent != kept and link.is_symlink() and link.readlink() == file
        if is_stale or not link.exists():
            shutil.rmtree(link.parent.parent, ignore_errors=True)
