"""Sums over the sequences of several queues, updated as sequences enter and leave."""

from pagewire_scheduler.core.state.request import Sequence


class QueueSums:
    """Sums over the queues of a worker, or of a cell.

    Attributes:
        num_sequences: All members, prefills and probes included.
        num_choices: Members that are choices of requests, and their followers.
        num_tokens: Tokens of those choices; a prompt with followers counts once.
    """

    __slots__ = ("_whole", "num_choices", "num_sequences", "num_tokens")

    def __init__(self, whole: "QueueSums | None" = None) -> None:
        """Args: `whole` are sums that these sums are a part of."""
        self._whole = whole
        self.num_sequences = self.num_choices = self.num_tokens = 0

    def enter(self, sequence: Sequence) -> None:
        """Count a sequence that waits now."""
        self.num_sequences += 1
        if sequence.is_asked_for:
            self.num_choices += 1 + len(sequence.branch.followers)
            self.num_tokens += len(sequence.tokens)
        if self._whole is not None:
            self._whole.enter(sequence)

    def leave(self, sequence: Sequence) -> None:
        """Count a sequence no more."""
        self.num_sequences -= 1
        if sequence.is_asked_for:
            self.num_choices -= 1 + len(sequence.branch.followers)
            self.num_tokens -= len(sequence.tokens)
        if self._whole is not None:
            self._whole.leave(sequence)

    def drop_follower(self) -> None:
        """Count the end of a choice that follows a member."""
        self.num_choices -= 1
        if self._whole is not None:
            self._whole.drop_follower()
