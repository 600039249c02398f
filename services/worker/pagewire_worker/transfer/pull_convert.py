"""Converts between the messages of a pull and plain data; refuses wrong ones, naming the field."""

from collections.abc import Sequence
from dataclasses import dataclass

from pagewire_protos.common.v1 import layout_pb2
from pagewire_protos.worker.v1 import kv_transfer_pb2 as wire
from pagewire_shared.convert import agree_protocol, protocol_range
from pagewire_shared.errors import PeerRefusedError, WireError
from pagewire_shared.kv.arena import ArenaFacts
from pagewire_shared.kv.arrays import pack_names, unpack_names
from pagewire_shared.kv.transport import KvTransport
from pagewire_shared.kv.transport_convert import transport_from_message, transport_to_message
from pagewire_worker.offload.connector import BlockLayout
from pagewire_worker.offload.layout_convert import layout_to_message
from pagewire_worker.transfer_engines.engine import MAX_DESCRIPTION_BYTES, LentMemory


@dataclass(frozen=True, slots=True)
class PullRequest:
    """Blocks that another worker wants.

    Attributes:
        protocol: The version that both speak.
        names: 16 bytes each, in order of position, each once.
        seconds: How long the receiver will wait.
        use_shared_memory: Whether the receiver may map our memory.
        engine: The library by which it asks to read our memory; None for none.
    """

    protocol: int
    names: Sequence[bytes]
    seconds: float
    use_shared_memory: bool
    engine: KvTransport | None = None


MAX_PULL_SECONDS = 600.0
"""No prompt takes longer."""


def pull_from_message(
    message: wire.PullOpen, *, layout: BlockLayout, worker_id: bytes, num_blocks: int
) -> PullRequest:
    """Return the request in `message`.

    Raises:
        PeerRefusedError: The request does not fit this worker, or is invalid.
    """
    protocol = agree_protocol(message.protocol)
    if message.worker_id != worker_id:
        raise PeerRefusedError(
            f"worker_id: this is worker {worker_id.hex()}, not {message.worker_id.hex()[:64]}",
            field="worker_id",
        )
    _check_layout(message.layout, layout_to_message(layout))
    if message.remaining_ms == 0:
        raise PeerRefusedError("remaining_ms: a pull needs time", field="remaining_ms")
    return PullRequest(
        protocol=protocol,
        names=_names(message.names, num_blocks),
        seconds=min(message.remaining_ms / 1000, MAX_PULL_SECONDS),
        use_shared_memory=message.use_shared_memory,
        engine=transport_from_message(message.engine),
    )


def _check_layout(theirs: layout_pb2.KvLayout, ours: layout_pb2.KvLayout) -> None:
    for field in ("model_fingerprint", "numerics_fingerprint"):
        if getattr(theirs, field) != getattr(ours, field):
            raise PeerRefusedError(
                f"layout.{field}: it is {getattr(ours, field).hex()} here, not "
                f"{getattr(theirs, field).hex()[:64]}",
                field=f"layout.{field}",
            )
    if list(theirs.groups) != list(ours.groups):
        raise PeerRefusedError(
            "layout.groups: the cache groups of the two workers differ", field="layout.groups"
        )


def _names(data: bytes, num_blocks: int) -> list[bytes]:
    try:
        names = unpack_names(data)
    except WireError as error:
        raise PeerRefusedError(f"names: {error.message}", field="names") from error
    if not names:
        raise PeerRefusedError("names: nothing is asked for", field="names")
    if len(names) > num_blocks:
        raise PeerRefusedError(
            f"names: {len(names)} of them, and the pool here has {num_blocks} blocks",
            field="names",
        )
    if len(set(names)) != len(names):
        raise PeerRefusedError("names: a name is there twice", field="names")
    return names


def open_to_message(
    names: list[bytes],
    *,
    layout: layout_pb2.KvLayout,
    worker_id: bytes,
    seconds: float,
    use_shared_memory: bool,
    engine: KvTransport | None = None,
) -> wire.PullRequest:
    """Return the first message of a receiver."""
    return wire.PullRequest(
        open=wire.PullOpen(
            protocol=protocol_range(),
            layout=layout,
            names=pack_names(names),
            remaining_ms=max(1, int(seconds * 1000)),
            worker_id=worker_id,
            use_shared_memory=use_shared_memory,
            engine=None if engine is None else transport_to_message(engine),
        )
    )


def accepted_to_message(
    protocol: int, staging: ArenaFacts | None, lent: LentMemory | None = None
) -> wire.PullResponse:
    """Return the answer to `open`, with `staging` if layers lie in memory that both map, or with
    `lent` if a library reads them."""
    facts = None
    if staging is not None:
        facts = wire.KvStaging(
            path=staging.path,
            boot_id=staging.boot_id,
            device=staging.device,
            inode=staging.inode,
            num_bytes=staging.num_bytes,
        )
    memory = None
    if lent is not None:
        memory = wire.KvLentMemory(
            transport=transport_to_message(lent.transport),
            description=lent.description,
            address=lent.address,
            num_bytes=lent.num_bytes,
        )
    accepted = wire.PullAccepted(protocol=protocol, staging=facts, lent=memory)
    return wire.PullResponse(accepted=accepted)


def staging_from_message(message: wire.PullAccepted) -> ArenaFacts | None:
    """Return the memory in which layers lie; None if their bytes are sent."""
    if not message.HasField("staging"):
        return None
    return ArenaFacts(
        path=message.staging.path,
        boot_id=message.staging.boot_id,
        device=message.staging.device,
        inode=message.staging.inode,
        num_bytes=message.staging.num_bytes,
    )


def lent_from_message(message: wire.PullAccepted, engine: KvTransport | None) -> LentMemory | None:
    """Return the memory in which `engine` finds layers; None if they lie elsewhere.

    Raises:
        WireError: It is not described as this version knows it.
    """
    if not message.HasField("lent"):
        return None
    lent = message.lent
    if engine is None or transport_from_message(lent.transport) is not engine:
        raise WireError("lent: nobody asked for that library", field="lent.transport")
    if len(lent.description) > MAX_DESCRIPTION_BYTES:
        raise WireError(
            f"lent: a description of {len(lent.description)} bytes", field="lent.description"
        )
    return LentMemory(engine, lent.description, lent.address, lent.num_bytes)


def missing_to_message(names: list[bytes]) -> wire.PullResponse:
    """Return the message that blocks will not come."""
    return wire.PullResponse(missing=wire.PullMissing(names=pack_names(names)))
