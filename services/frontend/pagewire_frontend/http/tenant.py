"""Whose request it is, as the edge has found out."""

from fastapi import Request


def tenant_of(request: Request) -> str | None:
    """Return whose key the request came with; None where there are no keys."""
    tenant: str | None = getattr(request.state, "tenant", None)
    return tenant
