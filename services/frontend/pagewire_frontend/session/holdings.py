"""What this frontend holds, counted for an audit. Plain data."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that should not be there."""

    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class HeldResources:
    """Open journal entries, handles on one attach stream, and contradictions between the two."""

    num_open_streams: int
    num_handles: int
    findings: tuple[Finding, ...]
