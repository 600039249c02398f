"""The health of a process for HTTP probes beside its metrics.

The kubelet speaks no TLS to gRPC. Its HTTP probes ask the metrics port, whose thread asks the event
loop in turn: a loop that hangs gives no answer in time.
"""

import asyncio
import threading
from dataclasses import dataclass, field
from typing import Final

FOLDER: Final = "/health/"
"""Beginning of the paths; behind it is the name of a health service."""
ANSWER_SECONDS: Final = 2.0


@dataclass(slots=True)
class _Health:
    states: dict[str, bool] = field(default_factory=dict)
    loop: asyncio.AbstractEventLoop | None = None


_health = _Health()


def note(name: str, is_serving: bool) -> None:
    """Note the state of a health service; called on the event loop of the process."""
    _health.loop = asyncio.get_running_loop()
    _health.states[name] = is_serving


def is_serving(name: str, seconds: float = ANSWER_SECONDS) -> bool | None:
    """Return whether a health service serves; None for one that is not known. In another thread.

    A loop that does not turn within `seconds` serves nothing.
    """
    loop = _health.loop
    if loop is None or name not in _health.states:
        return None
    turned = threading.Event()
    try:
        loop.call_soon_threadsafe(turned.set)
    except RuntimeError:
        return False  # closed at the end of the process
    return turned.wait(seconds) and _health.states[name]
