"""Notes what the steps of workers did for traced requests."""

from collections.abc import Iterable

from pagewire_scheduler.core.data.moments import Moment, MomentKind
from pagewire_scheduler.core.state.request import Sequence


def note_chunks(
    worker_id: bytes, chunks: Iterable[tuple[Sequence, int]], seconds: float, now: float
) -> None:
    """Note parts of prompts that a step computed in `seconds` of its worker's clock.

    Args:
        chunks: Sequences of traced requests, and how many tokens of their prompts.
    """
    for sequence, num_tokens in chunks:
        moments = sequence.request.moments
        if moments is not None:
            moments.add(
                Moment(
                    kind=MomentKind.PREFILL,
                    choice=sequence.choice,
                    ended_at=now,
                    seconds=seconds,
                    worker_id=worker_id,
                    num_tokens=num_tokens,
                )
            )


def note_stay(worker_id: bytes, sequence: Sequence, now: float) -> None:
    """Note that a sequence has its first token on a worker."""
    moments = sequence.request.moments
    if moments is not None:
        moments.add(
            Moment(
                kind=MomentKind.DECODE,
                choice=sequence.choice,
                ended_at=now,
                seconds=0.0,
                worker_id=worker_id,
            )
        )
