"""Log-probabilities of prompts: taken from step results piece by piece, and kept once per request.

No position predicts the first token of a prompt, so positions count from 1.
"""

from array import array
from collections.abc import Iterable, Iterator

from pagewire_scheduler.core.data.events import PromptLogprobsEvent
from pagewire_scheduler.core.data.step_plan import PromptLogprobs
from pagewire_scheduler.core.data.token_logprobs import PromptPiece
from pagewire_scheduler.core.state.frontend import prompt_event
from pagewire_scheduler.core.state.outstanding_step import Chunk, OutstandingStep
from pagewire_scheduler.core.state.request import Request
from pagewire_shared.errors import WireError


def pieces_of(
    step: OutstandingStep, result: PromptLogprobs | None
) -> list[tuple[Request, PromptPiece]]:
    """Return the pieces in a result, with the live requests they belong to.

    Raises:
        WireError: The log-probabilities do not cover the prompt positions of the step.
    """
    if not step.reports_prompt_logprobs and result is None:
        return []
    result = result or PromptLogprobs()
    wanted = [(chunk, *_range(chunk, start)) for chunk, start in _reporting(step)]
    wanted = [entry for entry in wanted if entry[1] < entry[2]]
    reported = list(zip(result.slots, result.first_positions, result.counts, strict=False))
    if reported != [(chunk.slot, first, end - first) for chunk, first, end in wanted]:
        raise WireError(f"step {step.step_id} tells other parts of prompts than it computed")
    pieces, begin, top = [], 0, 0
    for chunk, first, end in wanted:
        count = end - first
        num_top = result.num_top[begin] if result.num_top else 0
        top_end = top + count * num_top
        piece = PromptPiece(
            first_position=first,
            num_top=num_top,
            logprobs=array("f", result.logprobs[begin : begin + count]),
            ranks=array("I", result.ranks[begin : begin + count]),
            top_token_ids=array("I", result.top_token_ids[top:top_end]),
            top_logprobs=array("f", result.top_logprobs[top:top_end]),
        )
        if len(piece.logprobs) != count or len(piece.top_logprobs) != count * num_top:
            raise WireError(f"step {step.step_id} has too few log-probabilities of prompts")
        begin, top = begin + count, top_end
        if chunk.sequence.is_live:
            pieces.append((chunk.sequence.request, piece))
    return pieces


def enter_pieces(pieces: Iterable[tuple[Request, PromptPiece]]) -> Iterator[PromptLogprobsEvent]:
    """Keep the new parts of `pieces`; yield them as events for attached frontends."""
    for request, piece in pieces:
        # Every sequence reports a prompt from its start, so no part is missing before a piece.
        assert piece.first_position <= request.num_prompt_logprobs_reported, (
            "a part of a prompt is missing"
        )
        if piece.end <= request.num_prompt_logprobs_reported:
            continue
        new = piece.between(request.num_prompt_logprobs_reported, piece.end)
        request.prompt_pieces.append(new)
        request.num_prompt_logprobs_reported = new.end
        event = prompt_event(request, new)
        if event is not None:
            yield event


def _reporting(step: OutstandingStep) -> list[tuple[Chunk, int]]:
    return [
        (chunk, start)
        for chunk, start in zip(step.chunks, step.plan.starts, strict=True)
        if chunk.sequence.reports_prompt_logprobs
    ]


def _range(chunk: Chunk, start: int) -> tuple[int, int]:
    """Return the prompt positions that the tokens of `chunk` predict."""
    return start + 1, min(chunk.end + 1, chunk.sequence.num_prompt)
