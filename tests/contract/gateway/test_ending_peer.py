"""Calls between frontends that one of them ends, because it ends itself."""

import grpc.aio
import pytest

from pagewire_frontend.group.peer_client import Peer
from pagewire_protos.frontend.v1 import peer_pb2_grpc
from pagewire_shared.errors import UnavailableError
from pagewire_shared.rpc.address import Address


class EndingPeer(peer_pb2_grpc.PeerServiceServicer):
    """Ends each call as a server does whose grace has passed."""

    async def GetResponse(self, request, context):
        await context.abort(grpc.StatusCode.CANCELLED)

    async def FollowStream(self, request, context):
        await context.abort(grpc.StatusCode.CANCELLED)


async def test_a_peer_that_ends_is_away_and_no_fault_of_ours(tmp_path):
    """A client asks again for 503, and an answer of 500 would be its last."""
    server = grpc.aio.server()
    peer_pb2_grpc.add_PeerServiceServicer_to_server(EndingPeer(), server)
    path = str(tmp_path / "peer.sock")
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    peer = Peer("b", Address(path=path), timeout_seconds=10)
    try:
        with pytest.raises(UnavailableError, match="frontend b of this group does not answer"):
            await peer.get("resp_1", None)
        with pytest.raises(UnavailableError, match="frontend b of this group does not answer"):
            await peer.read("stream", None, 0)
    finally:
        await peer.close()
        await server.stop(0)
