"""Beam search as arithmetic: maps the candidates of each beam to the beams of the next step and to
finished sequences. `core.parallel.beam_group` maps beams to slots and blocks.

The rules are those of `_beam_search` in transformers (generation/utils.py), for one prompt. The
best `width` continuations that do not end go on. A continuation that ends counts only if it is
among the best `width` of all. A finished sequence of n tokens scores its sum of log-probabilities
divided by n ** length_penalty.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import NamedTuple

from pagewire_shared.sampling.beam import BeamParams


class Beam(NamedTuple):
    """One running beam.

    Attributes:
        tokens: Generated tokens.
        score: Sum of log-probabilities.
        candidates: (token, log-probability) of the likeliest next tokens, at least `num_candidates`
            of the search, or all there are.
    """

    tokens: Seq[int]
    score: float
    candidates: Seq[tuple[int, float]]


class Branch(NamedTuple):
    """A beam of the next step: beam `parent` grown by `token`."""

    score: float
    parent: int
    token: int


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A finished sequence; `score` includes the length penalty."""

    score: float
    tokens: tuple[int, ...]
    is_stopped: bool


@dataclass(slots=True, kw_only=True)
class BeamSearch:
    """The search of one prompt.

    Attributes:
        width: Beams and results.
        max_tokens: Tokens after which every sequence ends.
        min_tokens: No end token before that many.
        end_ids: Tokens that end a sequence.
        finished: The best `width` finished sequences so far, the best first.
    """

    width: int
    max_tokens: int
    params: BeamParams
    end_ids: frozenset[int] = frozenset()
    min_tokens: int = 0
    finished: list[Hypothesis] = field(default_factory=list)

    @property
    def num_candidates(self) -> int:
        """Likeliest next tokens needed of every beam: `width` must remain when all ends go."""
        return self.width + len(self.end_ids)

    def step(self, beams: Seq[Beam]) -> list[Branch]:
        """Return the beams of the next step, the best first; none when the search has ended.

        Fewer than `width` come back only when the vocabulary has no more. All beams have generated
        equally many tokens.
        """
        num_tokens = len(beams[0].tokens) + 1
        branches = self._ranked(beams, num_tokens)
        is_last = num_tokens >= self.max_tokens
        ended = [
            Hypothesis(
                branch.score / num_tokens**self.params.length_penalty,
                (*beams[branch.parent].tokens, branch.token),
                branch.token in self.end_ids,
            )
            for branch in branches[: self.width]
            if is_last or branch.token in self.end_ids
        ]
        # The best of old and new ones; of equals those that ended earlier.
        self.finished = sorted([*self.finished, *ended], key=lambda one: -one.score)[: self.width]
        running = [branch for branch in branches if branch.token not in self.end_ids]
        running = [] if is_last else running[: self.width]
        return running if running and self._goes_on(running[0].score, num_tokens) else []

    def _ranked(self, beams: Seq[Beam], num_tokens: int) -> list[Branch]:
        branches = [
            Branch(beam.score + logprob, index, token)
            for index, beam in enumerate(beams)
            for token, logprob in beam.candidates
            if num_tokens > self.min_tokens or token not in self.end_ids
        ]
        # Equal scores: the better beam first, then the lower token.
        branches.sort(key=lambda branch: (-branch.score, branch.parent, branch.token))
        return branches

    def _goes_on(self, best_score: float, num_tokens: int) -> bool:
        """Whether the running beams are worth another step, by the rule of `early_stopping`."""
        params = self.params
        if len(self.finished) < self.width:
            return True
        if params.early_stopping is True:
            return False
        is_length_free = params.early_stopping is None and params.length_penalty > 0.0
        length = self.max_tokens if is_length_free else num_tokens
        return bool(best_score / length**params.length_penalty > self.finished[-1].score)
