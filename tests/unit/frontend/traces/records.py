"""A request that has ended, to vary in tests."""

from pagewire_frontend.metrics.timeline import CellTimeline
from pagewire_frontend.traces.request_record import ChoiceRecord, RequestRecord

CELL = CellTimeline(
    queue_seconds=1.0,
    transfer_seconds=0.5,
    prefill_seconds=2.0,
    transfer_bytes=64,
    transport="shared_memory",
    cached_tiers={"worker": 16},
)
CHOICE = ChoiceRecord(
    cell=CELL, first_at=15.0, last_at=18.0, longest_gap=0.5, num_tokens=7, reason="stop"
)
RECORD = RequestRecord(
    request_id=bytes(range(16)),
    label=None,
    model="tiny",
    adapter=None,
    parent=None,
    arrived_at=10.0,
    tokenize_began_at=10.25,
    tokenize_seconds=0.5,
    submitted_at=11.0,
    first_at=15.0,
    ended_at=20.0,
    num_prompt=40,
    num_cached=16,
    num_resubmits=0,
    max_tokens=7,
    temperature=0.0,
    top_p=1.0,
    error="",
    is_finished=True,
    choices=(CHOICE,),
)
