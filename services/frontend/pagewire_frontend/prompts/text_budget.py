"""How many bytes of texts may wait for work or be worked on, in all and of one tenant. Pure."""

from collections import Counter

from pagewire_shared.errors import OverloadedError


class TextBudget:
    """Bytes that are held at the moment.

    Args:
        max_bytes: Most in all; one tenant takes at most half of them.
        what: What waits for what, as clients are told.
    """

    def __init__(self, max_bytes: int, what: str = "texts wait for the tokenizer") -> None:
        self.max_bytes = max_bytes
        self._what = what
        self.num_bytes = 0
        self._by_tenant: Counter[str | None] = Counter()

    @property
    def max_tenant_bytes(self) -> int:
        """Most of one tenant, and so the largest text that is ever taken."""
        return self.max_bytes // 2

    def take(self, tenant: str | None, num_bytes: int) -> None:
        """Hold so many bytes until `give`. Raises OverloadedError."""
        if self._by_tenant[tenant] + num_bytes > self.max_tenant_bytes:
            raise OverloadedError(f"too many of your {self._what}")
        if self.num_bytes + num_bytes > self.max_bytes:
            raise OverloadedError(f"too many {self._what}")
        self._by_tenant[tenant] += num_bytes
        self.num_bytes += num_bytes

    def give(self, tenant: str | None, num_bytes: int) -> None:
        """Hold them no longer."""
        self.num_bytes -= num_bytes
        self._by_tenant[tenant] -= num_bytes
        if not self._by_tenant[tenant]:
            del self._by_tenant[tenant]
