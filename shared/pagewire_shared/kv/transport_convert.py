"""Converts KvTransport to and from its wire form."""

from collections.abc import Iterable

from pagewire_protos.common.v1 import layout_pb2
from pagewire_shared.kv.transport import KvTransport

_TO_WIRE = {
    KvTransport.GRPC: layout_pb2.KV_TRANSPORT_GRPC,
    KvTransport.SHARED_MEMORY: layout_pb2.KV_TRANSPORT_SHARED_MEMORY,
    KvTransport.NIXL: layout_pb2.KV_TRANSPORT_NIXL,
    KvTransport.MOONCAKE: layout_pb2.KV_TRANSPORT_MOONCAKE,
}
_FROM_WIRE: dict[int, KvTransport] = {number: one for one, number in _TO_WIRE.items()}


def transport_to_message(transport: KvTransport) -> "layout_pb2.KvTransport":
    """Return the wire form."""
    return _TO_WIRE[transport]


def transport_from_message(number: int) -> KvTransport | None:
    """Return a transport; None for a number that this version does not know."""
    return _FROM_WIRE.get(number)


def transports_from_message(numbers: Iterable[int]) -> tuple[KvTransport, ...]:
    """Return the transports that this version knows, each once, in order."""
    known = (transport_from_message(number) for number in numbers)
    return tuple(dict.fromkeys(one for one in known if one is not None))
