"""Accounts: sums of requests, waiting sequences and memory, by model and tenant."""

from dataclasses import dataclass, field
from typing import NamedTuple


class Cost(NamedTuple):
    """The amounts that a request adds when it comes; see `AccountSums`."""

    num_sequences: int
    num_tokens: int
    num_bytes: int
    bytes_at_most: int


class AccountKey(NamedTuple):
    """The model and tenant that are charged; a spare account is beside the limits."""

    model: str
    tenant: str
    is_spare: bool


@dataclass(slots=True)
class AccountSums:
    """Sums over requests.

    Attributes:
        num_requests: Number of requests.
        num_waiting: Waiting sequences, followers included.
        num_tokens: Tokens of the waiting sequences, each prompt counted once.
        num_bytes: Memory: held, and expected next.
        bytes_at_most: The memory if every request takes all it may.
    """

    num_requests: int = 0
    num_waiting: int = 0
    num_tokens: int = 0
    num_bytes: int = 0
    bytes_at_most: int = 0


@dataclass(slots=True, eq=False)
class Account:
    """The sums of one key, which are in the sums of its model and the cell, too."""

    key: AccountKey
    model: AccountSums
    cell: AccountSums
    own: AccountSums = field(default_factory=AccountSums)

    def note_waiting(self, num_sequences: int, num_tokens: int) -> None:
        """Add waiting sequences and tokens; take them off where negative."""
        for tally in (self.own, self.model, self.cell):
            tally.num_waiting += num_sequences
            tally.num_tokens += num_tokens

    def note_request(self, count: int, num_bytes: int, bytes_at_most: int) -> None:
        """Count a request that comes (+1) or goes (-1), with its memory."""
        for tally in (self.own, self.model, self.cell):
            tally.num_requests += count
            tally.num_bytes += num_bytes
            tally.bytes_at_most += bytes_at_most

    def note_growth(self, num_bytes: int) -> None:
        """Add memory that a counted request holds more."""
        for tally in (self.own, self.model, self.cell):
            tally.num_bytes += num_bytes
