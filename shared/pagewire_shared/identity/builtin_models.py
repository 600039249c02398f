"""Where the models lie that the distribution carries, by name. Opens none of their files."""

import importlib.util
from pathlib import Path

BUILTIN_NAME = "pagewire-builtin"
# The model of `pagewire serve`, and a smaller one of the same tokens.
BUILTIN_NAMES = {BUILTIN_NAME: "builtin_model", f"{BUILTIN_NAME}-draft": "builtin_draft"}


def builtin_folder(name: str) -> Path | None:
    """Return the folder of a built-in model; None for any other name, or where it was left out of
    an installation."""
    if name not in BUILTIN_NAMES:
        return None
    # Looked up, not imported: `pagewire` stands above this package.
    spec = importlib.util.find_spec("pagewire")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / BUILTIN_NAMES[name]
    return folder if folder.is_dir() else None
