"""Computes what drafts gain on one model from their acceptance on another one and from the times of
its steps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What was measured of the drafts of one stream, all of which were verified.

    Attributes:
        num_tokens: Tokens that steps have given.
        num_drafted: Steps that had drafts.
        right_at: Right drafts by place, [drafts].
    """

    num_tokens: int
    num_drafted: int
    right_at: Sequence[int]

    @property
    def num_steps(self) -> int:
        """Steps of the stream: each gives a token, and right drafts give one more each."""
        return self.num_tokens - sum(self.right_at)


def speedup(measured: Acceptance, num_drafts: int, seconds: Callable[[int], float]) -> float:
    """Return the time per token without drafts by that with up to `num_drafts` of them.

    With f the part of the steps that have drafts, a_j the part of those whose first j drafts are
    all right, and t(n) the seconds of a step of n rows, this is

        t(1) * (1 + f * (a_1 + ... + a_k)) / ((1 - f) * t(1) + f * t(1 + k))

    It is an upper bound: f and a_j are those of the other model, looking drafts up takes no time,
    and a step with drafts does not wait for its plan.

    Args:
        seconds: Returns t(n), for n from 1 to `num_drafts` + 1.
    """
    if measured.num_drafted == 0:
        return 1.0
    part = measured.num_drafted / measured.num_steps
    right = sum(measured.right_at[:num_drafts]) / measured.num_drafted
    step = (1.0 - part) * seconds(1) + part * seconds(1 + num_drafts)
    return seconds(1) * (1.0 + part * right) / step
