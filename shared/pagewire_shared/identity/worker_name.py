"""How operators name a worker: by its id in hex, or the beginning of it."""

from collections.abc import Collection

from pagewire_shared.errors import InvalidRequestError

SHOWN_DIGITS = 8
"""Of an id in tables and logs."""


def find_worker(prefix: str, names: Collection[str]) -> str:
    """Return the one of `names`, in lower-case hex, that begins with `prefix`.

    Raises:
        InvalidRequestError: None does, or several do; names worker.
    """
    wanted = prefix.strip().lower()
    found = [name for name in names if name.startswith(wanted)] if wanted else []
    if not wanted:
        reason = "worker must name a worker by its id in hex, or the beginning of it"
    elif not found:
        known = ", ".join(sorted(name[:SHOWN_DIGITS] for name in names)) or "none"
        reason = f"no attached worker is called {prefix!r}; there are: {known}"
    elif len(found) > 1:
        several = ", ".join(sorted(found))
        reason = f"{prefix!r} is the beginning of several workers: {several}"
    else:
        return found[0]
    raise InvalidRequestError(reason, field="worker")
