"""Parses the adapters that the flag --lora-modules names."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pagewire_shared.errors import StartupError

MAX_NAME_CHARS: Final = 255
_JSON_FIELDS: Final = {"name", "path", "base_model_name"}


@dataclass(frozen=True, slots=True)
class NamedFolder:
    """An adapter of a flag: name, folder, and name of its model, which is "" for the only one."""

    name: str
    path: Path
    base_model: str = ""


def parse_modules(texts: Sequence[str]) -> list[NamedFolder]:
    """Return the adapters of --lora-modules: NAME=PATH, or a JSON object with name, path and
    base_model_name, as in vLLM (LoRAModulePath). Raises StartupError."""
    modules = [_parse_module(text) for text in texts]
    names = [module.name for module in modules]
    for name in names:
        if names.count(name) > 1:
            raise _refused(f"two adapters are called {name!r}")
    return modules


def _parse_module(text: str) -> NamedFolder:
    if text.lstrip().startswith("{"):
        return _parse_json(text)
    name, equals, path = text.partition("=")
    if not (equals and name and path):
        raise _refused(f"{text!r} is neither NAME=PATH nor a JSON object")
    return NamedFolder(_checked(name), Path(path).expanduser().absolute())


def _parse_json(text: str) -> NamedFolder:
    try:
        found: Any = json.loads(text)
    except ValueError as error:
        raise _refused(f"{text!r} is no JSON: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        raise _refused(f"{text!r} is not an object of texts")
    if unknown := sorted(found.keys() - _JSON_FIELDS):
        raise _refused(f"{unknown[0]!r} is none of name, path, base_model_name")
    if not (found.get("name") and found.get("path")):
        raise _refused(f"{text!r} lacks name or path")
    path = Path(found["path"]).expanduser().absolute()
    return NamedFolder(_checked(found["name"]), path, found.get("base_model_name", ""))


def _checked(name: str) -> str:
    if len(name) > MAX_NAME_CHARS:
        raise _refused(f"a name has more than {MAX_NAME_CHARS} characters")
    return name


def _refused(problem: str) -> StartupError:
    return StartupError(f"--lora-modules: {problem}", field="lora_modules")
