"""Stores small measurements in a file, for the next start."""

import json
import logging
import os
from pathlib import Path

_logger = logging.getLogger(__name__)


class KeptFacts:
    """A JSON object of facts by key; any other content of the file is ignored."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, key: str) -> object:
        """Return the fact; None if it was not measured."""
        return self._read().get(key)

    def keep(self, key: str, fact: object) -> None:
        """Store a measurement; if that fails, it is measured again at the next start."""
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(json.dumps({**self._read(), key: fact}))
            beside.replace(self._path)
        except OSError as error:
            _logger.debug("what was measured is not kept: %s", error)

    def _read(self) -> dict[str, object]:
        try:
            found = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def cache_folder() -> Path:
    """Return the folder of this user's caches; an unusable one for a user without a home."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pagewire"
    except RuntimeError:
        return Path(os.devnull) / "pagewire"
