"""Selects the choices that a reader gets once all have ended: the best of more than were asked for,
or the outcome of a beam search."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pagewire_frontend.session.events import Delta, Finished
from pagewire_frontend.session.journal_records import ChoiceJournal
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.params import SamplingParams


@dataclass(frozen=True, slots=True)
class Selection:
    """The choices that a reader gets of those computed, all held back until every choice has ended.

    Attributes:
        num_shown: Number of choices for the reader.
        is_ranked: Whether the best come first; else they are in order already.
        has_logprobs: Whether the client asked for log-probabilities.
    """

    num_shown: int
    is_ranked: bool
    has_logprobs: bool

    def order(self, choices: Sequence[ChoiceJournal]) -> Sequence[int]:
        """Return the indices of the selected choices, in their order, once all have ended."""
        order = best_first(choices) if self.is_ranked else range(len(choices))
        return order[: self.num_shown]

    def events(
        self,
        choices: Sequence[ChoiceJournal],
        deltas: Mapping[int, Delta],
        ends: Sequence[Finished],
    ) -> Iterator[Delta | Finished]:
        """Yield one delta and the end of each selected choice, numbered from 0.

        Args:
            choices: All choices, ended.
            deltas: Their tokens and text, by choice.
            ends: Their ends, in any order.
        """
        end_of = {end.choice: end for end in ends}
        for number, choice in enumerate(self.order(choices)):
            if choice in deltas:
                delta = replace(deltas[choice], choice=number)
                if not self.has_logprobs:
                    delta.logprobs = []
                yield delta
            yield replace(end_of[choice], choice=number)


def computed(params: SamplingParams) -> tuple[SamplingParams, Selection | None]:
    """Return the parameters for the scheduler, and the selection of its choices; None to select
    all.

    Raises:
        InvalidRequestError: Log-probabilities of a beam search are not supported yet.
    """
    if params.use_beam_search:
        if params.logprobs is not None:
            raise InvalidRequestError(
                "logprobs are not supported yet with use_beam_search",
                field="logprobs",
                code="unsupported_parameter",
            )
        return params.with_(best_of=None), Selection(params.n, is_ranked=False, has_logprobs=False)
    if params.best_of in (None, params.n):
        return params.with_(best_of=None), None
    asked = params.logprobs
    # Ranking needs the log-probability of every token, whether or not the client sees it.
    wider = params.with_(n=params.best_of, best_of=None, logprobs=0 if asked is None else asked)
    return wider, Selection(params.n, is_ranked=True, has_logprobs=asked is not None)


def best_first(choices: Sequence[ChoiceJournal]) -> list[int]:
    """Return the indices of `choices`, the highest log-probability per token first.

    That is OpenAI's meaning of "best" (API reference, completions, `best_of`); vLLM 0.6 ranked by
    the sum, by which the shortest of similar answers wins. Equal choices stay in order.
    """
    return sorted(range(len(choices)), key=lambda index: -_mean_logprob(choices[index]))


def _mean_logprob(choice: ChoiceJournal) -> float:
    """Return the mean over the tokens; minus infinity where one is unknown."""
    values = [entry.logprob for entry in choice.logprobs]
    if not values or len(values) != len(choice.token_ids) or any(map(math.isnan, values)):
        return -math.inf
    return sum(values) / len(values)
