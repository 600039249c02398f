"""The adapter of a request: its identity, which never changes, and where workers may read it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AdapterUse:
    """An adapter as a request uses it.

    Attributes:
        adapter_id: SHA-256 of its content, 32 bytes.
        sources: `file:PATH` of a folder, or `grpc:ADDRESS` of an AdapterContentService, the best
            first.
        name: Name under which the client asked for it.
        rank: Its largest rank; 0 when unknown.
    """

    adapter_id: bytes
    sources: tuple[str, ...]
    name: str = ""
    rank: int = 0
