"""Decides by measured costs whether a prompt is computed on the worker that generates its tokens,
or on another one that hands it off.

The cost of computing on a worker grows with the number of streams that it delays. A worker that
only generates therefore hands long prompts off. It computes a short one in the time that a hand-off
would take.
"""

import enum
from dataclasses import dataclass
from typing import Final

from pagewire_scheduler.core.costs.link_speed import OVERHEAD_SECONDS

DISTURBANCE: Final = 0.1
"""Extra cost of a prompt, as a share, for each stream that it delays."""

APART: Final = 2.0
"""Cost factor on a receiver without the prefill role."""

AT_HOME: Final = 0.5
"""Cost factor on a receiver with the prefill role: a small gain does not justify a hand-off."""

MIN_BLOCKS: Final = 2
"""Shorter prompts are computed where they are."""

DEADLINE_FACTOR: Final = 2.0
MIN_SECONDS: Final = 2.0
MAX_SECONDS: Final = 60.0
UNMEASURED_SECONDS: Final = 20.0
"""How long a hand-off may take: twice its estimate and two seconds, at most a minute."""


class HandoffReason(enum.Enum):
    """Why a prompt was handed off, or not."""

    CHEAPER = "cheaper"  # handed off
    PROBE = "probe"  # handed off, to see whether the pair has become faster
    FORCED = "forced"  # handed off: the operator says so
    SHORT = "short"  # computed where it is: too few tokens to compute
    DEARER = "dearer"  # computed where it is
    SLOW = "slow"  # computed where it is: moving takes more than half as long
    BROKEN = "broken"  # computed where it is: pulls from the other worker fail
    ALONE = "alone"  # computed where it is: no other worker hands anything to it

    @property
    def is_handoff(self) -> bool:
        """Whether the decision is to hand off."""
        return self in (HandoffReason.CHEAPER, HandoffReason.PROBE, HandoffReason.FORCED)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillOption:
    """A worker that might compute the prompt.

    Attributes:
        num_tokens: Prompt tokens to be computed there.
        num_waiting: Tokens to be computed before the prompt.
        num_streams: Sequences there that generate meanwhile.
        seconds_per_token: As measured, or None.
        weight: Cost factor of the worker: APART, AT_HOME, or 1 for another worker.
    """

    num_tokens: int
    num_waiting: int
    num_streams: int
    seconds_per_token: float | None
    weight: float = 1.0

    def cost(self, seconds_per_token: float) -> float:
        """Return the cost of computing the prompt on this worker."""
        weight = (1 + DISTURBANCE * self.num_streams) * self.weight
        return (self.num_waiting + self.num_tokens) * seconds_per_token * weight


@dataclass(frozen=True, slots=True, kw_only=True)
class KvRoute:
    """The route of blocks from the other worker.

    Attributes:
        seconds: Expected wait for the blocks after prefill; None before a measurement.
        allows_attempt: Whether pulls may be tried at all.
        is_probe_due: Whether a pair that is too slow may be tried again.
    """

    seconds: float | None
    allows_attempt: bool
    is_probe_due: bool


def choose_handoff(
    here: PrefillOption,
    there: PrefillOption,
    way: KvRoute,
    *,
    block_size: int,
    is_forced: bool = False,
) -> tuple[HandoffReason, float]:
    """Decide where a prompt is computed; return (reason, seconds that a hand-off may take).

    With `is_forced` every prompt with a block to compute is handed off over a pair that works.
    """
    timeout = _timeout(here, there, way)
    if here.num_tokens < block_size * (1 if is_forced else MIN_BLOCKS):
        return HandoffReason.SHORT, timeout
    if not way.allows_attempt:
        return HandoffReason.BROKEN, timeout
    if is_forced:
        return HandoffReason.FORCED, timeout
    speeds = (here.seconds_per_token, there.seconds_per_token)
    known = [speed for speed in speeds if speed is not None]
    if not known:
        # Costs in tokens, as if both workers were equally fast.
        is_cheaper = there.cost(1.0) < here.cost(1.0)
        return (HandoffReason.CHEAPER if is_cheaper else HandoffReason.DEARER), timeout
    speed_here = speeds[0] if speeds[0] is not None else known[0]
    speed_there = speeds[1] if speeds[1] is not None else known[0]
    recompute = here.num_tokens * speed_here
    if recompute <= 2 * OVERHEAD_SECONDS:
        return HandoffReason.SHORT, timeout
    exposed = OVERHEAD_SECONDS if way.seconds is None else way.seconds
    verdict = HandoffReason.CHEAPER
    if exposed > recompute / 2:
        if not way.is_probe_due:
            return HandoffReason.SLOW, timeout
        verdict, exposed = HandoffReason.PROBE, OVERHEAD_SECONDS
    if there.cost(speed_there) + exposed >= here.cost(speed_here):
        return HandoffReason.DEARER, timeout
    return verdict, timeout


def _timeout(here: PrefillOption, there: PrefillOption, way: KvRoute) -> float:
    speed = there.seconds_per_token
    speed = here.seconds_per_token if speed is None else speed
    if speed is None:
        return UNMEASURED_SECONDS
    estimate = (there.num_waiting + there.num_tokens) * speed + (way.seconds or 0.0)
    return min(MIN_SECONDS + DEADLINE_FACTOR * estimate, MAX_SECONDS)
