"""What costly masks may take of the machine, tenant by tenant, whatever the grammars are. Pure: the
time is an argument.

Masks of real grammars take 10 to 30 microseconds. Up to `cheap_seconds` a mask is free. What it
takes beyond is paid by its tenant, out of a credit that grows with the wall clock. So the masks
that steps wait for take a bounded share of a core beyond what cheap ones take.
"""

from collections import OrderedDict
from dataclasses import dataclass

CHEAP_SECONDS = 0.00005
CHEAP_SECONDS_PER_TOKEN = 1e-9
"""CPU time of a mask that is free, and what a token of the vocabulary adds."""

SHARE = 0.05
"""Of a core: how fast the credit of a tenant grows."""

MOST_SECONDS = 0.1
"""Most credit: the first masks of a grammar also build its lexer."""

DEBT_SECONDS = 0.5
"""Requests that have been cheap so far go on at full speed until their tenant owes that much."""

PROVEN_MASKS = 16
"""How many masks show that a request is cheap."""

MAX_TENANTS = 4096

OTHERS_SECONDS = 1.0
"""How long a tenant that shared a step with others does not count as alone."""


def cheap_seconds(num_tokens: int) -> float:
    """Return the CPU time that a mask of a vocabulary may take for nothing."""
    return CHEAP_SECONDS + CHEAP_SECONDS_PER_TOKEN * num_tokens


@dataclass(slots=True, weakref_slot=True, eq=False)
class Credit:
    """CPU time that masks of one tenant may take beyond cheap ones, at full priority.

    Attributes:
        seconds: What there was `at` that time; below 0 it is owed.
        at: As time.monotonic.
        others_at: When a step last sampled for others, too.
    """

    seconds: float = MOST_SECONDS
    at: float = 0.0
    others_at: float = -OTHERS_SECONDS

    def left(self, now: float) -> float:
        """Return the credit."""
        self.seconds = min(MOST_SECONDS, self.seconds + SHARE * max(0.0, now - self.at))
        self.at = max(self.at, now)
        return self.seconds

    def charge(self, seconds: float, now: float) -> None:
        """Masks have taken that much more than cheap ones take, while others were there."""
        if self.has_others(now):
            self.seconds = self.left(now) - seconds

    def has_others(self, now: float) -> bool:
        """Whether anybody else would notice what its masks take."""
        return now - self.others_at < OTHERS_SECONDS

    def allows(self, now: float, *, is_proven: bool) -> bool:
        """Whether a mask may be one that steps wait for."""
        if not self.has_others(now):
            return True
        return self.left(now) > (-DEBT_SECONDS if is_proven else 0.0)


class MaskCredits:
    """Those of the tenants seen last."""

    def __init__(self) -> None:
        self._credits: OrderedDict[str | None, Credit] = OrderedDict()

    def of(self, tenant: str | None) -> Credit:
        """Return the credit of a tenant; None is the default one."""
        found = self._credits.setdefault(tenant, Credit())
        self._credits.move_to_end(tenant)
        while len(self._credits) > MAX_TENANTS:
            self._credits.popitem(last=False)
        return found
