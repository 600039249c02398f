"""Log-probabilities of single tokens as plain data. Owns no behaviour."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural log-probability of a token before temperature, its alternatives, most likely first,
    and its rank: the number of tokens at least as likely, 0 when that was not told."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Score:
    """What a worker says of one position of a prompt, whose token the reader knows."""

    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()
