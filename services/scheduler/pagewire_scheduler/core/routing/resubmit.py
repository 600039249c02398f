"""Compares a submission with the known request of the same id: a resend, a newer epoch, or a
contradiction."""

from collections.abc import Mapping
from collections.abc import Sequence as Seq

from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.data.submission import Submission
from pagewire_scheduler.core.results.finish import end_sequence
from pagewire_scheduler.core.state.frontend import ENDED, FrontendState
from pagewire_scheduler.core.state.request import Request
from pagewire_scheduler.core.state.request_creation import create_request
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.identity.ids import RequestId


def held_request(
    requests: Mapping[RequestId, Request],
    frontends: Mapping[bytes, FrontendState],
    frontend: FrontendState,
    submission: Submission,
) -> Request | None:
    """Return the known request of the same id; None without one.

    A request whose frontend is away is handed to `frontend`: the same request, asked for by a
    frontend that goes on with the streams of one that died.

    Raises:
        InvalidRequestError: `submission` cannot follow it, or it has to be known, and is not.
    """
    known = requests.get(submission.request_id)
    if known is None:
        if submission.must_be_held:
            raise InvalidRequestError("the request is not held here", field="must_be_held")
        return None
    owner = frontends[known.frontend_id]
    if owner is not frontend and not owner.is_attached and _is_same(known.submission, submission):
        frontend.adopt(known, owner)
    check_resubmit(known, frontend.frontend_id, submission)
    return known


def _is_same(held: Submission, asked: Submission) -> bool:
    return (
        (held.model, held.tenant, held.salt, held.adapter)
        == (asked.model, asked.tenant, asked.salt, asked.adapter)
        and held.sampling == asked.sampling
        and list(held.prompt_token_ids) == list(asked.prompt_token_ids)
    )


def check_resubmit(known: Request, frontend_id: bytes, submission: Submission) -> None:
    """Raise InvalidRequestError when `submission` cannot follow `known`."""
    if known.frontend_id != frontend_id:
        raise InvalidRequestError("the request belongs to another frontend", field="request_id")
    if submission.epoch < known.submission.epoch:
        raise InvalidRequestError(
            f"epoch {submission.epoch} is older than {known.submission.epoch}", field="epoch"
        )
    if submission.adapter != known.submission.adapter:
        raise InvalidRequestError("the request began with another adapter", field="adapter")
    positions = resend_positions(submission)
    if submission.epoch == known.submission.epoch and not is_resend(
        known, submission.epoch, positions
    ):
        raise InvalidRequestError(
            "emitted holds tokens that this epoch never sent; submit with a newer one",
            field="emitted",
        )


def resend_positions(submission: Submission) -> list[int]:
    """Return the next position that the frontend wants per choice."""
    return [
        ENDED if is_finished else len(tokens)
        for tokens, is_finished in zip(submission.emitted, submission.is_finished, strict=True)
    ]


def end_abandoned(request: Request, next_positions: Seq[int]) -> None:
    """End the choices that the frontend has ended while it was away."""
    if request.is_beam and not all(position == ENDED for position in next_positions):
        return  # the beams of a search are no choices yet
    for sequence, position in zip(request.sequences, next_positions, strict=True):
        if position == ENDED and not sequence.state.is_finished:
            end_sequence(sequence, State.FINISHED_ABORTED)


def is_resend(request: Request, epoch: int, next_positions: Seq[int]) -> bool:
    """Return whether `request` can go on from `next_positions` without a gap."""
    return (
        epoch == request.submission.epoch
        and len(next_positions) == len(request.sequences)
        and all(
            position == ENDED or position <= sequence.num_emitted
            for position, sequence in zip(next_positions, request.sequences, strict=True)
        )
    )


def renew(known: Request, submission: Submission) -> Request:
    """Return the request of the newer epoch; it keeps the place and the losses of `known`."""
    request = create_request(submission, known.frontend_id, known.arrival, known.rank)
    request.num_losses, request.num_together = known.num_losses, known.num_together
    request.num_emitted_at_loss = known.num_emitted_at_loss
    return request
