"""What a receiver asks for, as plain data."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PullRequest:
    """Blocks that another worker wants.

    Attributes:
        protocol: The version that both speak.
        names: 16 bytes each, in order of position, each once.
        seconds: How long it will wait.
        use_shared_memory: Whether it would look into our memory.
    """

    protocol: int
    names: Sequence[bytes]
    seconds: float
    use_shared_memory: bool
