"""Finds the folders of the models that the distribution contains, by name."""

import importlib.util
from pathlib import Path

BUILTIN_NAME = "pagewire-builtin"
# The default model of `pagewire serve`, and a smaller model with the same tokens.
BUILTIN_NAMES = {BUILTIN_NAME: "builtin_model", f"{BUILTIN_NAME}-draft": "builtin_draft"}


def builtin_folder(name: str) -> Path | None:
    """Return the folder of a built-in model; None for any other name, or when the installation
    leaves it out."""
    if name not in BUILTIN_NAMES:
        return None
    # Looked up, not imported: this package must not import `pagewire`.
    spec = importlib.util.find_spec("pagewire")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / BUILTIN_NAMES[name]
    return folder if folder.is_dir() else None
