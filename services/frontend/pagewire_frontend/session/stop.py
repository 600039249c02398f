"""Finds stop strings in a stream of text, across token borders, and holds back a possible beginning
of one."""

from collections.abc import Sequence
from typing import NamedTuple


class StopMatch(NamedTuple):
    """Outcome of a push: text that may be shown, and the stop string that ended it, or None."""

    text: str
    stop: str | None = None


class StopMatcher:
    """Finds the stop string that is completed first; of several completed by the same character the
    longest, whatever their order. (vLLM takes the first of its list there.)

    The text shown never depends on how the stream was cut into pieces: text that could be the
    beginning of a stop string is held back until the next piece decides.
    """

    def __init__(self, stops: Sequence[str], *, is_kept: bool = False) -> None:
        """Create the stop matcher.

        Args:
            stops: Non-empty strings.
            is_kept: Leave the match in the text.
        """
        self._stops = tuple(stops)
        self._is_kept = is_kept
        self._held = ""
        # Characters at the beginning of the held text that complete no match.
        self._num_exempt = 0

    def push(self, text: str, *, can_match: bool = True) -> StopMatch:
        """Take the next piece of text. With `can_match` false no match ends in the piece, but a
        match that a later piece completes may begin in it, as in vLLM."""
        if not self._stops:
            return StopMatch(text)
        buffer = self._held + text
        if not can_match:
            self._num_exempt = len(buffer)
        found = self._first_match(buffer)
        if found is not None:
            begin, stop = found
            self._held = ""
            end = begin + len(stop) if self._is_kept else begin
            return StopMatch(buffer[:end], stop)
        num_shown = len(buffer) - self._num_held(buffer)
        self._held = buffer[num_shown:]
        self._num_exempt = max(0, self._num_exempt - num_shown)
        return StopMatch(buffer[:num_shown])

    def flush(self) -> str:
        """Return the held text: the stream ended without a match."""
        held, self._held = self._held, ""
        return held

    def _first_match(self, buffer: str) -> tuple[int, str] | None:
        best: tuple[int, int, str] | None = None
        for stop in self._stops:
            begin = buffer.find(stop, max(0, self._num_exempt - len(stop) + 1))
            if begin >= 0 and (best is None or (begin + len(stop), begin) < best[:2]):
                best = (begin + len(stop), begin, stop)
        return (best[1], best[2]) if best else None

    def _num_held(self, buffer: str) -> int:
        longest = min(len(buffer), max(map(len, self._stops)) - 1)
        for length in range(longest, 0, -1):
            tail = buffer[len(buffer) - length :]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
