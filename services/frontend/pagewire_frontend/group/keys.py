"""Finds the owner of an idempotency key over the whole group."""

import hashlib
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from pagewire_frontend.group.membership import Membership
from pagewire_frontend.http.kept_streams.keys import KeyClaim, KeyDirectory, KeyHolder, LocalKeys
from pagewire_shared.errors import UnavailableError

_logger = logging.getLogger(__name__)

NUM_OWNERS: Final = 2
"""Members that know a key."""


class GroupKeys:
    """A KeyDirectory over the whole group: asks the owner of a key, and where that does not answer
    the next.

    The owner is found by rendezvous hashing (Thaler and Ravishankar 1998): of the names of all
    members the one whose hash with the key is the largest. All agree on it without talking.
    """

    def __init__(
        self, membership: Membership, local: LocalKeys, peers: Mapping[str, KeyDirectory]
    ) -> None:
        """Create the directory of one process.

        Args:
            peers: Directories by name.
        """
        self._local = local
        self._members: dict[str, KeyDirectory] = {membership.name: local, **peers}

    async def claim(self, claim: KeyClaim) -> KeyHolder:
        """Return what the key stands for from now on.

        A key that is given is noted at the next member, too, where others look when the owner
        is gone; what that member knows from such a time is older, and holds.

        Raises:
            UnavailableError: No member answers; this process always does.
        """
        owner, held, rest = await self._first(claim, self._order(claim))
        if held != claim.holder:
            return held
        with suppress(UnavailableError):
            _, noted, _ = await self._first(claim, rest)
            if noted != claim.holder:
                # The owner is new. Where the older stream is gone, this claim comes again.
                older = replace(claim, holder=noted, instead_of=claim.holder.stream_id)
                return await owner.claim(older)
        return held

    async def restore(self, name: str) -> None:
        """Give a peer that has just started the keys that it is asked for, which it has lost."""
        member = self._members[name]
        for claim in self._local.claims():
            if name in self._order(claim)[:NUM_OWNERS]:
                try:
                    await member.claim(claim)
                except UnavailableError as error:
                    _logger.warning("frontend %s is not given all its keys: %s", name, error)
                    return

    def _order(self, claim: KeyClaim) -> list[str]:
        return owners_of(claim.tenant, claim.key, list(self._members))

    async def _first(
        self, claim: KeyClaim, names: list[str]
    ) -> tuple[KeyDirectory, KeyHolder, list[str]]:
        """Return the first member that answers, what it answers, and the members behind it."""
        last = UnavailableError("no other frontend of this group answers")
        for index, name in enumerate(names):
            try:
                member = self._members[name]
                return member, await member.claim(claim), names[index + 1 :]
            except UnavailableError as error:
                _logger.warning("an idempotency key goes to the next frontend: %s", error)
                last = error
        raise last


def owners_of(tenant: str | None, key: str, names: list[str]) -> list[str]:
    """Return the names of the members in the order in which they own a key."""
    said = b"%d\n%b\n%b" % (tenant is not None, (tenant or "").encode(), key.encode())

    def weight(name: str) -> tuple[bytes, str]:
        return hashlib.blake2b(said, digest_size=16, key=name.encode()).digest(), name

    return sorted(names, key=weight, reverse=True)
