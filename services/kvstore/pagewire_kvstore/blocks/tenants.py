"""Tenants that a store serves, and their quotas in bytes."""

from collections.abc import Mapping

from pagewire_shared.errors import ForbiddenError, InvalidRequestError, StartupError
from pagewire_shared.process.sizes import parse_size

DEFAULT_TENANT = ""
MAX_TENANT_BYTES = 1024
"""Longest tenant name in UTF-8; records contain the name."""


class Tenants:
    """The tenants of a store.

    Args:
        default_quota: Bytes of a tenant that has no quota of its own; None for no bound.
        quotas: Bytes by name of a tenant.
        known_only: Refuse tenants that `quotas` does not name; the default tenant is always known.
    """

    def __init__(
        self,
        default_quota: int | None = None,
        quotas: Mapping[str, int] | None = None,
        *,
        known_only: bool = False,
    ) -> None:
        self._default_quota = default_quota
        self._quotas = dict(quotas or {})
        self._known_only = known_only

    def quota(self, tenant: str) -> int | None:
        """Return the bound of a tenant in bytes; None for no bound of its own."""
        return self._quotas.get(tenant, self._default_quota)

    def check(self, tenant: str) -> None:
        """Raise ForbiddenError or InvalidRequestError for a tenant that is not served."""
        if len(tenant.encode()) > MAX_TENANT_BYTES:
            raise InvalidRequestError(
                f"tenant has more than {MAX_TENANT_BYTES} bytes", field="tenant"
            )
        if self._known_only and tenant != DEFAULT_TENANT and tenant not in self._quotas:
            raise ForbiddenError(f"tenant {tenant!r} is not known to this store", field="tenant")


def parse_tenant(text: str) -> tuple[str, int]:
    """Return name and quota in bytes of NAME=BYTES. Raises StartupError."""
    name, separator, size = text.rpartition("=")
    if not separator or not name:
        raise StartupError(f"{text!r} is no tenant with its quota; write for example team-a=2GiB")
    return name, parse_size(size)
