"""Names what an engine needs of the exporter of traces, whose messages are imported only where an
endpoint is given."""

from typing import Protocol

from pagewire_frontend.traces.request_record import RequestRecord
from pagewire_frontend.traces.sampling import TracePolicy


class TraceTaker(Protocol):
    """Takes the records of requests that its policy takes."""

    @property
    def policy(self) -> TracePolicy:
        """Which requests are traced."""
        ...

    def put(self, record: RequestRecord) -> None:
        """Take a record. Never waits."""
        ...
