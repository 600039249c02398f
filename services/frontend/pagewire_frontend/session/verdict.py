"""What a message about a request turned out to be. Plain data."""

import enum


class ReceiveOutcome(enum.Enum):
    """What a message about a choice or a prompt turned out to be."""

    ACCEPTED = "accepted"
    """The next position (or the end) of the current epoch; it is in the journal now."""
    DUPLICATE = "duplicate"
    """Known already, or of an epoch before the current one; drop it."""
    GAP = "gap"
    """Something between is missing and is never waited for: submit again with epoch + 1."""


ACCEPTED = ReceiveOutcome.ACCEPTED
"""For the path of every token: looking a member up in its class costs as much as a call."""
