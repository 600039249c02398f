"""Short texts of results, for prompts of interpreters and for logs."""

from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any, Final

MAX_ITEMS: Final = 8
"""Items of a list of numbers that are shown."""


def short_repr(value: Any) -> str:
    """Return the fields of a dataclass that say something, with long lists cut."""
    shown = [
        f"{field.name}={_short(getattr(value, field.name))}"
        for field in fields(value)
        if not _is_default(field, getattr(value, field.name))
    ]
    return f"{type(value).__name__}({', '.join(shown)})"


def _is_default(field: Any, own: Any) -> bool:
    if own is None or own in ([], {}):
        return True
    return field.default is not MISSING and bool(own == field.default)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) <= MAX_ITEMS:
        return repr(value)
    if all(isinstance(item, int) for item in value):
        shown = ", ".join(map(str, value[:MAX_ITEMS]))
        return f"[{shown}, ... {len(value)} in all]"
    return f"[{len(value)} items]"
