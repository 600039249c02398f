"""Finds kept streams over the whole group."""

from collections.abc import Mapping

from pagewire_frontend.group.membership import Membership
from pagewire_frontend.http.kept_streams.directory import StreamDirectory, StreamReading
from pagewire_frontend.http.kept_streams.ids import stream_not_found, tag_of_stream
from pagewire_shared.identity.frontend_tag import SLOT_DIGITS, slot_of


class GroupStreams:
    """A StreamDirectory over the whole group: asks the process that made a stream."""

    def __init__(
        self,
        membership: Membership,
        local: StreamDirectory,
        peers: Mapping[str, StreamDirectory],
    ) -> None:
        """Create the directory of one process.

        Args:
            peers: Directories by name.
        """
        self._tag = membership.tag
        self._local = local
        self._peers = {slot_of(name): peer for name, peer in peers.items()}

    async def read(self, stream_id: str, tenant: str | None, first: int) -> StreamReading:
        """Begin to read a stream from event number `first` on.

        Raises:
            StreamNotFoundError: No process keeps it.
            UnavailableError: The peer that may keep it does not answer.
        """
        tag = tag_of_stream(stream_id)
        if tag is None or tag == self._tag:
            return await self._local.read(stream_id, tenant, first)
        peer = self._peers.get(tag[:SLOT_DIGITS])
        if peer is None:
            # Made by no process of the group, or by an earlier process of its name.
            raise stream_not_found(stream_id)
        return await peer.read(stream_id, tenant, first)
