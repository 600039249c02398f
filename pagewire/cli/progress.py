"""Prints the progress of a start to standard error: a moving line on a terminal, else lines."""

import sys
import time
from typing import TextIO

from pagewire.local.child_process import LineReceived
from pagewire.local.notices import ChildReady, Loading, Notice, StandingBy, StoodDown
from pagewire.local.supervision import BecameReady, Restarting

_CLEAR_LINE = "\r\x1b[K"
_PLAIN_STEP = 0.25
"""Without a terminal, progress is one line per quarter, not one per tensor."""


class StartProgress:
    """Shows notices; call `show` from one thread.

    Args:
        stream: Stream to write to; standard error if None.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._is_terminal = self._stream.isatty()
        self._began = time.monotonic()
        self._is_starting = True
        self._states: dict[str, str] = {}
        self._shown_fractions: dict[str, float] = {}
        self._moving("starting")

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def show(self, notice: Notice) -> None:
        """Show one notice."""
        match notice:
            case LineReceived(name, text):
                self._line(f"{name} | {text}")
            case StandingBy(name, _):
                self._line(f"pagewire: {name} does not answer; a replacement stands by")
            case StoodDown(name, reason):
                self._line(f"pagewire: the replacement of {name} has ended: {reason}")
            case Restarting(name, reason, delay):
                when = f"in {delay:.1f} s" if delay else "now"
                self._line(f"pagewire: {name} ended ({reason}); starting it again {when}")
            case BecameReady():
                self._is_starting = False
                self.clear()
            case ChildReady(name) if self._is_starting:
                self._progress(name, "ready", 1.0)
            case ChildReady(name):
                self._line(f"pagewire: {name} is ready again")
            case Loading(name, fraction, detail) if self._is_starting:
                done = "" if fraction is None else f" {fraction:.0%}"
                self._progress(name, f"{detail or 'loading'}{done}", fraction)

    def clear(self) -> None:
        """Erase the moving line, before something else is printed."""
        self._moving("")

    def _progress(self, name: str, state: str, fraction: float | None) -> None:
        self._states[name] = state
        if self._is_terminal:
            states = ", ".join(f"{child} {text}" for child, text in self._states.items())
            self._moving(f"starting ({self.seconds:.0f} s): {states}")
            return
        shown = self._shown_fractions.get(name)
        if state != "ready" and shown is not None and (fraction or 0.0) < shown + _PLAIN_STEP:
            return
        self._shown_fractions[name] = fraction or 0.0
        self._line(f"pagewire: {name}: {state} ({self.seconds:.1f} s)")

    def _line(self, text: str) -> None:
        clear = _CLEAR_LINE if self._is_terminal else ""
        print(f"{clear}{text}", file=self._stream, flush=True)

    def _moving(self, text: str) -> None:
        if self._is_terminal:
            print(f"{_CLEAR_LINE}{text}", end="", file=self._stream, flush=True)
