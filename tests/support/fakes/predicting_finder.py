"""A client that has seen the whole output of each sequence, and predicts it with mistakes."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pagewire_worker.speculation.prediction import PredictionFinder
from pagewire_worker.speculation.proposer import NOTHING, Drafts, SequenceStart, Tokens


class PredictingFinder:
    """Finds drafts in predictions, each of which lacks some tokens of the real output.

    Args:
        futures: Whole sequences, prompt and output.
        missing_every: Of so many tokens one is missing.
    """

    def __init__(self, futures: Iterable[Sequence[int]], missing_every: int) -> None:
        self._futures = [list(map(int, one)) for one in futures]
        self._missing_every = missing_every
        self._finder = PredictionFinder(2**31 - 1)
        self._starts: dict[int, SequenceStart] = {}

    def begin(self, slot: int, start: SequenceStart) -> None:
        """Wait for the tokens, which show the future."""
        self._finder.release(slot)
        self._starts[slot] = start

    def release(self, slot: int) -> None:
        """Forget the sequence of `slot`."""
        self._finder.release(slot)
        self._starts.pop(slot, None)

    def clear(self) -> None:
        """Forget all sequences."""
        self._finder.clear()
        self._starts.clear()

    def find(self, slot: int, tokens: Tokens, most: int) -> Drafts:
        """Return predicted tokens for the places behind `tokens`."""
        start = self._starts.pop(slot, None)
        if start is not None:
            self._predict(slot, start, tokens.tolist())
        return self._finder.find(slot, tokens, most) if len(tokens) else NOTHING

    def _predict(self, slot: int, start: SequenceStart, known: list[int]) -> None:
        for future in self._futures:
            if future[: len(known)] == known:
                output = future[start.num_prompt :]
                kept = [
                    token for index, token in enumerate(output, 1) if index % self._missing_every
                ]
                self._finder.begin(slot, replace(start, predicted_token_ids=kept))
                return
