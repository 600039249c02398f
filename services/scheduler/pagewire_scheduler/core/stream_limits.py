"""What may be under way to one worker at a time; plain numbers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Credits of the stream to one worker.

    Attributes:
        max_grammars: Grammars asked for and not answered.
        max_grammar_bytes: Bytes of their sources together, unless one alone has more.
    """

    max_grammars: int = 16
    max_grammar_bytes: int = 2 * 1024 * 1024
