"""Reads files of keys."""

import re
from pathlib import Path
from typing import Final

from pagewire_shared.errors import StartupError
from pagewire_shared.process.settings import flag_of

MAX_KEYS: Final = 4
"""Of a file: the first one is used, and all of them are accepted."""

_KEY: Final = re.compile(r"[0-9a-fA-F]{64}")


def read_keys(path: str, *, setting: str = "kv_key_file") -> tuple[bytes, ...]:
    """Return the keys in a file: 64 hexadecimal digits a line, `#` begins a comment.

    Args:
        setting: The setting that names the file.

    Raises:
        StartupError: The file cannot be read, or has another form; no key is shown.
    """
    try:
        lines = [line.partition("#")[0].strip() for line in Path(path).read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise StartupError(
            f"{flag_of(setting)}: cannot read {path}: {reason}", field=setting
        ) from error
    keys = [line for line in lines if line]
    if not 1 <= len(keys) <= MAX_KEYS or not all(_KEY.fullmatch(key) for key in keys):
        raise StartupError(
            f"{flag_of(setting)}: {path} has to hold 1 to {MAX_KEYS} keys, a line each, of 64"
            " hexadecimal digits (`openssl rand -hex 32`)",
            field=setting,
        )
    return tuple(bytes.fromhex(key) for key in keys)
