"""Reads the chat template of a model, or one that was given on the command line."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pagewire_shared.errors import StartupError

TEMPLATE_FILE: Final = "chat_template.jinja"
PROCESSOR_FILES: Final = ("chat_template.json", "processor_config.json")
"""Files that models for images have beside those of the tokenizer."""


def stored_template(folder: Path, tokenizer_config: Mapping[str, Any]) -> str | None:
    """Return the template in `folder`; None without any.

    It is that of chat_template.jinja, else of tokenizer_config.json, else of a processor.

    Raises:
        StartupError: The file of a processor is not JSON.
    """
    path = folder / TEMPLATE_FILE
    if path.is_file():
        return path.read_text(encoding="utf-8")
    source: Any = tokenizer_config.get("chat_template")
    for name in PROCESSOR_FILES:
        if source is None and (folder / name).is_file():
            source = _template_in(folder / name)
    if isinstance(source, list):
        named = {item.get("name"): item.get("template") for item in source}
        source = named.get("default")
    return source if isinstance(source, str) else None


def _template_in(path: Path) -> Any:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise StartupError(f"{path} is no JSON: {error}", field="model") from error
    return data.get("chat_template") if isinstance(data, dict) else None


def template_text(given: str) -> str:
    """Return the text of a template that is given as text or as the path of a file.

    Raises:
        StartupError: It is neither a file nor has the marks of a template.
    """
    if "{%" in given or "{{" in given or "{#" in given:
        return given
    path = Path(given).expanduser()
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise StartupError(
            f"--chat-template: {given[:200]} cannot be read: {reason}", field="chat_template"
        ) from error
