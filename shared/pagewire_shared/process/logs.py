"""Log format of every role: time, level, role and message as text, or one JSON object a line."""

import json
import logging
import sys

FIELDS = "pagewire_fields"
"""Name in `extra` of further JSON values of a line; only the JSON format shows them."""


class _JsonFormatter(logging.Formatter):
    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
            "level": record.levelname.lower(),
            "role": self._role,
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry.update(getattr(record, FIELDS, {}))
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def configure_logging(role: str, level: str, log_format: str) -> None:
    """Send all log records of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        handler.setFormatter(_JsonFormatter(role))
    else:
        layout = f"%(asctime)s %(levelname)-7s {role}: %(message)s"
        handler.setFormatter(logging.Formatter(layout, "%H:%M:%S"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
