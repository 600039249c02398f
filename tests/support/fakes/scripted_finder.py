"""A finder that has seen the whole output of each sequence, and is wrong on purpose."""

from collections.abc import Iterable, Sequence

from pagewire_worker.speculation.proposer import NOTHING, Drafts, SequenceStart, Tokens


class ScriptedFinder:
    """Proposes what each sequence will really go on with, wrong in some places.

    Args:
        futures: Whole sequences, prompt and output.
        wrong_every: Of so many drafts one is wrong; 0 for none.
    """

    def __init__(self, futures: Iterable[Sequence[int]], wrong_every: int = 0) -> None:
        self._futures = [list(map(int, one)) for one in futures]
        self._wrong_every = wrong_every
        self.num_proposed = 0

    def begin(self, slot: int, start: SequenceStart) -> None:
        """Do nothing."""

    def release(self, slot: int) -> None:
        """Do nothing."""

    def clear(self) -> None:
        """Do nothing."""

    def find(self, slot: int, tokens: Tokens, most: int) -> Drafts:
        """Return the next tokens of the first future that begins with `tokens`."""
        known = tokens.tolist()
        for future in self._futures:
            if len(future) > len(known) and future[: len(known)] == known:
                drafts = future[len(known) : len(known) + most]
                return [self._spoilt(token) for token in drafts]
        return NOTHING

    def _spoilt(self, token: int) -> int:
        self.num_proposed += 1
        is_wrong = self._wrong_every and self.num_proposed % self._wrong_every == 0
        return token ^ 1 if is_wrong else token
