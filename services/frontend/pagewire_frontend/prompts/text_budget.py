"""Bounds the bytes of texts that wait for work or are worked on, in all and per tenant."""

from collections import Counter

from pagewire_shared.errors import OverloadedError


class TextBudget:
    """Bytes that are held at the moment.

    Args:
        max_bytes: Most in all; one tenant takes at most half of them.
        what: Subject of the error: the texts, and the part that they wait for.
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
        """Hold `num_bytes` until `give`. Raises OverloadedError."""
        if self._by_tenant[tenant] + num_bytes > self.max_tenant_bytes:
            raise OverloadedError(f"too many of your {self._what}")
        if self.num_bytes + num_bytes > self.max_bytes:
            raise OverloadedError(f"too many {self._what}")
        self._by_tenant[tenant] += num_bytes
        self.num_bytes += num_bytes

    def give(self, tenant: str | None, num_bytes: int) -> None:
        """Release bytes that were held."""
        self.num_bytes -= num_bytes
        self._by_tenant[tenant] -= num_bytes
        if not self._by_tenant[tenant]:
            del self._by_tenant[tenant]
