"""Merges the deltas of each choice into one, given when the choice ends, for readers of whole
answers. A message per token costs more than all else that a frontend does for it."""

from typing import Final

from pagewire_frontend.session.events import Delta, Event, Finished

MAX_TOKENS: Final = 65_536
MAX_LOGPROBS: Final = 4_096
"""Limits of a merged delta; a full delta is given before the choice ends."""


class FinalDeltas:
    """Holds back the deltas of one stream."""

    def __init__(self) -> None:
        self._held: dict[int, Delta] = {}

    def take(self, event: Event) -> list[Event]:
        """Return the events to show now that `event` has come, in order."""
        if isinstance(event, Delta):
            return self._hold(event)
        if isinstance(event, Finished):
            held = self._held.pop(event.choice, None)
            return [event] if held is None else [held, event]
        return [event]

    def _hold(self, delta: Delta) -> list[Event]:
        held = self._held.get(delta.choice)
        if held is None:
            self._held[delta.choice] = delta
            return []
        if (
            len(held.token_ids) + len(delta.token_ids) > MAX_TOKENS
            or len(held.logprobs) + len(delta.logprobs) > MAX_LOGPROBS
        ):
            self._held[delta.choice] = delta
            return [held]
        held.token_ids.extend(delta.token_ids)
        held.logprobs.extend(delta.logprobs)
        held.text += delta.text
        return []
