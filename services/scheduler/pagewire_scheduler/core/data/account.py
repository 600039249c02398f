"""Accounts: sums of requests, waiting sequences and memory, by model and tenant."""

from dataclasses import dataclass, field
from typing import NamedTuple


class Cost(NamedTuple):
    """What a request adds when it comes; see `AccountSums`."""

    num_sequences: int
    num_tokens: int
    num_bytes: int
    bytes_at_most: int


class AccountKey(NamedTuple):
    """Who is charged; what is `spare` stands beside the limits, see `load`."""

    model: str
    tenant: str
    is_spare: bool


@dataclass(slots=True)
class AccountSums:
    """Sums over requests.

    Attributes:
        num_requests: How many.
        num_waiting: Sequences that wait, choices that follow others among them.
        num_tokens: Tokens of those that wait, each prompt counted once.
        num_bytes: Memory held, and what is expected next.
        bytes_at_most: What that comes to if every request takes all it may.
    """

    num_requests: int = 0
    num_waiting: int = 0
    num_tokens: int = 0
    num_bytes: int = 0
    bytes_at_most: int = 0


@dataclass(slots=True, eq=False)
class Account:
    """What the requests of one key come to, which is in the sums of its model and the cell, too."""

    key: AccountKey
    model: AccountSums
    cell: AccountSums
    own: AccountSums = field(default_factory=AccountSums)

    def note_waiting(self, num_sequences: int, num_tokens: int) -> None:
        """So many more wait; fewer where negative."""
        for tally in (self.own, self.model, self.cell):
            tally.num_waiting += num_sequences
            tally.num_tokens += num_tokens

    def note_request(self, count: int, num_bytes: int, bytes_at_most: int) -> None:
        """A request comes (+1) or goes (-1) with the memory that it is charged."""
        for tally in (self.own, self.model, self.cell):
            tally.num_requests += count
            tally.num_bytes += num_bytes
            tally.bytes_at_most += bytes_at_most

    def note_growth(self, num_bytes: int) -> None:
        """So much more memory is held, of what it was known may come."""
        for tally in (self.own, self.model, self.cell):
            tally.num_bytes += num_bytes
