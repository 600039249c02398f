"""Conversion of the protocol version and of audit findings between messages and plain values."""

from pagewire_protos.common.v1 import audit_pb2, layout_pb2
from pagewire_shared import PROTOCOL_MAX, PROTOCOL_MIN
from pagewire_shared.errors import PeerRefusedError


def protocol_range() -> layout_pb2.ProtocolRange:
    """Return the versions this build speaks."""
    return layout_pb2.ProtocolRange(min=PROTOCOL_MIN, max=PROTOCOL_MAX)


def agree_protocol(peer: layout_pb2.ProtocolRange) -> int:
    """Return the highest version that both speak. Raises PeerRefusedError without a common one."""
    version = min(PROTOCOL_MAX, peer.max)
    if version < max(PROTOCOL_MIN, peer.min) or version == 0:
        raise PeerRefusedError(
            f"protocol versions {peer.min} to {peer.max} are not spoken here, "
            f"only {PROTOCOL_MIN} to {PROTOCOL_MAX}",
            field="protocol",
        )
    return version


def finding(process: str, kind: str, detail: str) -> audit_pb2.AuditFinding:
    """Return an audit finding."""
    return audit_pb2.AuditFinding(process=process, kind=kind, detail=detail)
