"""Limits the CPU time of costly masks per tenant, whatever the grammars are. Time is an argument.

Masks of real grammars take 10 to 30 microseconds. Up to `cheap_seconds` a mask is free. The rest is
paid by its tenant, out of a credit that grows with the wall clock. So the costly masks that steps
wait for take a bounded share of a core.
"""

from collections import OrderedDict
from dataclasses import dataclass

CHEAP_SECONDS = 0.00005
CHEAP_SECONDS_PER_TOKEN = 1e-9
"""CPU time of a free mask, and the addition per token of the vocabulary."""

SHARE = 0.05
"""Share of a core at which the credit of a tenant grows."""

MOST_SECONDS = 0.1
"""Upper bound of the credit: the first masks of a grammar also build its lexer."""

DEBT_SECONDS = 0.5
"""Requests that have been cheap so far keep full speed until their tenant owes this much."""

SPARE_SHARE = 0.5
"""Of the most credit, that masks behind drafts leave for those that a step needs."""

PROVEN_MASKS = 16
"""Number of masks that prove that a request is cheap."""

MAX_TENANTS = 4096

OTHERS_SECONDS = 1.0
"""After sharing a step with others, a tenant does not count as alone for this time."""


def cheap_seconds(num_tokens: int) -> float:
    """Return the CPU time that is free for a mask over `num_tokens` tokens."""
    return CHEAP_SECONDS + CHEAP_SECONDS_PER_TOKEN * num_tokens


@dataclass(slots=True, weakref_slot=True, eq=False)
class Credit:
    """CPU time that masks of one tenant may take beyond cheap ones, at full priority.

    Attributes:
        seconds: The credit at the time `at`; a debt if negative.
        at: As time.monotonic.
        others_at: Time when a step last sampled for other tenants too.
    """

    seconds: float = MOST_SECONDS
    at: float = 0.0
    others_at: float = -OTHERS_SECONDS

    def left(self, now: float) -> float:
        """Return the credit at the time `now`."""
        self.seconds = min(MOST_SECONDS, self.seconds + SHARE * max(0.0, now - self.at))
        self.at = max(self.at, now)
        return self.seconds

    def charge(self, seconds: float, now: float) -> None:
        """Subtract the CPU time beyond cheap masks, if other tenants were affected."""
        if self.has_others(now):
            self.seconds = self.left(now) - seconds

    def has_others(self, now: float) -> bool:
        """Whether other tenants would notice the CPU time of its masks."""
        return now - self.others_at < OTHERS_SECONDS

    def allows(self, now: float, *, is_proven: bool) -> bool:
        """Whether steps may wait for a mask of this tenant."""
        if not self.has_others(now):
            return True
        return self.left(now) > (-DEBT_SECONDS if is_proven else 0.0)

    def can_spare(self, now: float) -> bool:
        """Whether there is credit for masks that are not needed for certain."""
        return not self.has_others(now) or self.left(now) > SPARE_SHARE * MOST_SECONDS


class MaskCredits:
    """The credits of the tenants seen last."""

    def __init__(self) -> None:
        self._credits: OrderedDict[str, Credit] = OrderedDict()

    def of(self, tenant: str) -> Credit:
        """Return the credit of a tenant; "" is the default tenant."""
        found = self._credits.setdefault(tenant, Credit())
        self._credits.move_to_end(tenant)
        while len(self._credits) > MAX_TENANTS:
            self._credits.popitem(last=False)
        return found
