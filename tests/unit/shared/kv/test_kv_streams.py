"""Streams of KV over a real connection: ours on both sides, and a usual protobuf client."""

import grpc
import grpc.aio

from pagewire_protos.kvstore.v1 import kv_store_pb2 as pb
from pagewire_protos.kvstore.v1.kv_store_pb2_grpc import KvStoreServiceStub
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.chunk_convert import KvPiece, checksum_of
from pagewire_shared.kv.streams import deserializer, serializer

SERVICE, METHOD = "pagewire.kvstore.v1.KvStoreService", "Put"
NAME = BlockName(b"n" * 16)


class Server:
    """Notes what it is sent, and answers each message with a credit."""

    def __init__(self):
        self.got = []

    async def put(self, requests, context):
        async for request in requests:
            self.got.append(request)
            yield pb.PutResponse(credit=pb.PutCredit(num_chunks=1))


async def started(server):
    handler = grpc.stream_stream_rpc_method_handler(
        server.put,
        request_deserializer=deserializer(pb.PutRequest),
        response_serializer=pb.PutResponse.SerializeToString,
    )
    running = grpc.aio.server()
    running.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),)
    )
    port = running.add_insecure_port("127.0.0.1:0")
    await running.start()
    return running, f"127.0.0.1:{port}"


async def test_chunks_of_both_encoders_decode_to_equal_pieces():
    server = Server()
    running, address = await started(server)
    publish = pb.PutRequest(publish=pb.PutPublish(names=NAME))
    piece = KvPiece(name=NAME, group=1, offset=5, is_last=True, data=b"data")
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            own = channel.stream_stream(
                f"/{SERVICE}/{METHOD}",
                request_serializer=serializer(pb.PutRequest),
                response_deserializer=pb.PutResponse.FromString,
            )
            assert len([reply async for reply in own(iter([piece, publish]))]) == 2
            other = pb.PutRequest()
            other.chunk.name, other.chunk.group, other.chunk.offset = NAME, 1, 5
            other.chunk.is_last, other.chunk.data = True, b"data"
            other.chunk.checksum = checksum_of(piece)
            usual = KvStoreServiceStub(channel).Put(iter([other, publish]))
            assert len([reply async for reply in usual]) == 2
    finally:
        await running.stop(None)
    ours, first, theirs, second = server.got
    assert first == second == publish
    for got in (ours, theirs):
        assert isinstance(got, KvPiece)
        assert got.data_checksum is not None
        assert (got.name, got.group, got.offset, got.is_last) == (NAME, 1, 5, True)
        assert bytes(got.data) == b"data"


def test_a_chunk_among_other_fields_is_a_chunk():
    """An unknown field before it, as a later version may send."""
    message = pb.PutRequest()
    message.chunk.name, message.chunk.data = NAME, b"x"
    data = bytes([15 << 3, 1]) + message.SerializeToString()
    read = deserializer(pb.PutRequest)(data)
    assert isinstance(read, KvPiece)
    assert bytes(read.data) == b"x"
    assert read.data_checksum is None
