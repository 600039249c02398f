"""Converts between reports and the messages of StandbyService."""

from pagewire_protos.scheduler.v1 import standby_pb2 as pb
from pagewire_shared.pair.choice import HeardReport


def report_to_message(report: HeardReport) -> pb.WatchRequest:
    """Return the message of a report."""
    return pb.WatchRequest(
        active_generation=report.active_generation,
        highest_generation=report.highest_generation,
        asks=report.asks,
    )
