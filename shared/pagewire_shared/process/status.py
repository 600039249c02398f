"""Status lines of a role for its parent: one JSON object per line on standard output.

Logs go to standard error. A person who starts a role by hand sees the status lines as text.
Events: standby {}, listening {address}, loading {fraction, detail}, ready {detail}, alive
{is_alive} as the answer to a probe, stopping {}, failed {message}.
"""

import json
import sys
from typing import Any

_KEY = "pagewire"


class StatusReporter:
    """Writes status lines; as JSON when `is_managed` (started by `pagewire serve` or `LLM`)."""

    def __init__(self, role: str, *, is_managed: bool) -> None:
        self._role = role
        self._is_managed = is_managed
        self._is_serving = False

    @property
    def is_serving(self) -> bool:
        """Whether the role has reported "ready", and not yet "stopping"."""
        return self._is_serving

    def report(self, event: str, **details: Any) -> None:
        """Write one status line. A closed standard output is not an error."""
        if event in ("ready", "stopping"):
            self._is_serving = event == "ready"
        if self._is_managed:
            line = json.dumps({_KEY: event, "role": self._role, **details})
        else:
            shown = " ".join(f"{key}={value}" for key, value in details.items())
            line = f"pagewire {self._role}: {event} {shown}".rstrip()
        try:
            print(line, file=sys.stdout, flush=True)
        except (BrokenPipeError, ValueError):
            return


def parse_status(line: str) -> dict[str, Any] | None:
    """Return the status in a line of a child's standard output, or None for any other line."""
    if not line.startswith("{"):
        return None
    try:
        data = json.loads(line)
    except ValueError:
        return None
    if not isinstance(data, dict) or _KEY not in data:
        return None
    return {"event": data.pop(_KEY), **data}
