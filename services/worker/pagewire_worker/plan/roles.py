"""Roles of a worker: prefill, decode or both."""

from collections.abc import Iterable
from enum import Enum

from pagewire_shared.errors import StartupError


class WorkerRole(Enum):
    """A role; values are the words of `--roles`."""

    PREFILL = "prefill"
    DECODE = "decode"


ALL_ROLES = tuple(WorkerRole)


def parse_roles(texts: Iterable[str]) -> tuple[WorkerRole, ...]:
    """Return the roles in comma-separated lists of words, each role once.

    Raises:
        StartupError: An unknown word, or no word at all.
    """
    words = [word.strip() for text in texts for word in text.split(",")]
    known = {role.value: role for role in WorkerRole}
    for word in words:
        if word not in known:
            raise StartupError(f"--roles: {word!r} is none of {', '.join(known)}", field="roles")
    if not words:
        raise StartupError("--roles: a worker has one role at least", field="roles")
    return tuple(role for role in WorkerRole if role.value in words)
