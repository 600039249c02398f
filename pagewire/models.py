"""Resolves the models that a deployment serves, names and folders, from the command line."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pagewire.converter import gguf_folder
from pagewire_shared.errors import StartupError
from pagewire_shared.identity.model_folder import BUILTIN_NAME, BUILTIN_NAMES
from pagewire_shared.model_files.folder import check_place
from pagewire_shared.model_files.template import stored_template

BUILTIN_FOLDERS = {name: Path(__file__).parent / folder for name, folder in BUILTIN_NAMES.items()}
BUILTIN_FOLDER = BUILTIN_FOLDERS[BUILTIN_NAME]


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model and its name in the API.

    Attributes:
        path: A local folder or a hub id.
    """

    name: str
    path: str

    @property
    def is_local(self) -> bool:
        """Whether `path` is a folder of this machine, not a hub id."""
        return Path(self.path).is_dir()

    @property
    def architecture(self) -> str:
        """The first architecture in config.json; empty where it cannot be read."""
        try:
            names = json.loads((Path(self.path) / "config.json").read_text())["architectures"]
            return str(names[0])
        except (OSError, ValueError, LookupError, TypeError):
            return ""

    @property
    def has_chat_template(self) -> bool:
        """Whether the model can render a conversation; assumed for models of a hub."""
        folder = Path(self.path)
        if not folder.is_dir():
            return True
        try:
            path = folder / "tokenizer_config.json"
            config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
            return stored_template(folder, config) is not None
        except (OSError, ValueError, StartupError):
            return False


def served_models(entries: Sequence[str], served_model_name: str | None) -> tuple[ServedModel, ...]:
    """Return the models for `--model` entries; the built-in model without entries.

    Raises:
        StartupError: A folder is missing, or a name is not unique.
    """
    models = [_served_model(entry) for entry in entries]
    if not models:
        models = [_served_model(BUILTIN_NAME)]
    if served_model_name is not None:
        if len(models) > 1:
            raise StartupError(
                "--served-model-name names one model; write --model name=path for several",
                field="--served-model-name",
            )
        models = [ServedModel(served_model_name, models[0].path)]
    names = [model.name for model in models]
    for name in names:
        if names.count(name) > 1:
            raise StartupError(
                f"--model: two models are named {name!r}; write name=path", field="--model"
            )
    return tuple(models)


def _served_model(entry: str) -> ServedModel:
    name, equals, path = entry.partition("=")
    if not equals or (os.sep in name and Path(entry).exists()):
        name, path = "", entry
    if not path:
        raise StartupError(f"--model: {entry!r} is neither name=path nor a path", field="--model")
    if path in BUILTIN_FOLDERS and not Path(path).exists():
        check_place(BUILTIN_FOLDERS[path], str(BUILTIN_FOLDERS[path]))
        return ServedModel(name or path, str(BUILTIN_FOLDERS[path]))
    folder = Path(path).expanduser()
    if folder.suffix == ".gguf" and folder.is_file():
        return ServedModel(name or folder.stem, str(gguf_folder(folder)))
    if _looks_local(path) or folder.exists():
        check_place(folder, path)
        folder = folder.resolve()
        return ServedModel(name or folder.name, str(folder))
    return ServedModel(name or path, path)


def _looks_local(path: str) -> bool:
    # A hub id is "model" or "organisation/model"; anything else can only be a path.
    return path.startswith((".", "/", "~")) or path.count("/") > 1
