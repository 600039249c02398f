"""Keeps what a speculator knows of a slot whose sequence may have drafts."""

from dataclasses import dataclass

from pagewire_shared.steps.plan import NewSequence
from pagewire_worker.speculation.chances import SequenceChance
from pagewire_worker.speculation.proposer import NOTHING, Drafts, SequenceStart


@dataclass(slots=True)
class DraftedSlot:
    """What a speculator keeps of one sequence.

    Attributes:
        pause, next_search: Tokens that the next search in vain is not repeated for, and the tokens
            that the next search takes.
        learnt: Tokens that there were when drafts had been verified.
        position, drafts: The drafts that were offered, and the place of the first.
    """

    start: SequenceStart
    chance: SequenceChance
    pause: int = 1
    next_search: int = 0
    learnt: int = 0
    position: int = -1
    drafts: Drafts = NOTHING


def start_of(request: NewSequence) -> SequenceStart | None:
    """Return what proposers know of a new sequence; None for one that has no drafts."""
    if request.is_beam or request.pooling is not None:
        return None
    num_prompt = request.num_prefix_tokens + len(request.prompt_token_ids)
    return SequenceStart(
        scope=(request.tenant, request.draft_scope),
        num_prompt=num_prompt,
        num_tokens=num_prompt + len(request.emitted_token_ids),
        predicted_token_ids=request.predicted_token_ids,
    )
