"""Reads a chat template that was given on the command line."""

from pathlib import Path

from pagewire_shared.errors import StartupError


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
