"""Counts of the resources that this frontend holds, for an audit."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One inconsistency, such as a leaked handle."""

    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class HeldResources:
    """Open journal entries, handles on one attach stream, and contradictions between the two."""

    num_open_streams: int
    num_handles: int
    findings: tuple[Finding, ...]
