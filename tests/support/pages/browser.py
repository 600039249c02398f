"""Chromium without a window, and a record of what its pages ask for and complain about."""

from dataclasses import dataclass, field
from typing import Any

from support.tools import tool

INSTALL = "apt-get install chromium"


def launch_options() -> dict[str, Any]:
    """Return the arguments of `launch`; skips or fails as `require_tool`."""
    # The root of a container has no sandbox.
    return {"executable_path": tool("chromium", INSTALL), "args": ["--no-sandbox"]}


@dataclass(frozen=True, slots=True)
class Seen:
    """What the pages of a browser context did.

    Attributes:
        requests: Addresses that were asked for.
        complaints: Errors and warnings of the console, and exceptions of scripts.
    """

    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


def watch(context: Any) -> Seen:
    """Record what happens in a context, of playwright's sync or async API."""
    seen = Seen()

    def note_console(message: Any) -> None:
        if message.type in ("error", "warning"):
            seen.complaints.append(message.text)

    context.on("request", lambda request: seen.requests.append(request.url))
    context.on("console", note_console)
    context.on("weberror", lambda fault: seen.complaints.append(str(fault.error)))
    return seen
