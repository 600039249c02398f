"""What is refused at the door: requests that could never end well, and too many of them."""

from collections.abc import Sequence as Seq

from pagewire_scheduler.core.request import Sequence, Submission
from pagewire_scheduler.core.worker_state import ModelInfo, WorkerState
from pagewire_shared.errors import (
    ContextLengthError,
    InvalidRequestError,
    OverloadedError,
    PagewireError,
)


def max_len(submission: Submission, model: ModelInfo) -> int:
    """Return the length in tokens at which a sequence of `submission` ends with LENGTH."""
    limit = submission.sampling.max_tokens
    rest = model.max_model_len - len(submission.prompt_token_ids)
    return len(submission.prompt_token_ids) + (rest if limit is None else min(limit, rest))


def num_blocks_at_most(length: int, block_size: int) -> int:
    """Return the blocks that a sequence ending at `length` tokens ever holds.

    The last token's keys and values are never written.
    """
    return -(-(length - 1) // block_size)


def fits(worker: WorkerState, sequence: Sequence) -> bool:
    """Whether `sequence` can run to its end on `worker` when nothing else does."""
    length = max_len(sequence.request.submission, worker.info.model)
    return (
        len(sequence.tokens) < worker.info.model.max_model_len
        and num_blocks_at_most(length, worker.info.model.block_size) <= worker.info.num_blocks
    )


def check_submission(submission: Submission) -> None:
    """Raise InvalidRequestError for what is wrong whatever the model."""
    if not submission.prompt_token_ids:
        raise InvalidRequestError("the prompt is empty", field="prompt")
    if not submission.emitted or len(submission.emitted) != len(submission.is_finished):
        raise InvalidRequestError("emitted must have one entry per choice", field="emitted")


def check_fits(submission: Submission, workers: Seq[WorkerState]) -> None:
    """Raise the error that keeps `submission` from ever running on `workers` of its model."""
    model = workers[0].info.model
    length = len(submission.prompt_token_ids)
    if length + 1 > model.max_model_len:
        raise ContextLengthError(
            f"the prompt has {length} tokens; with at least one to generate that is more than the "
            f"context of {model.max_model_len}",
            field="prompt",
        )
    if max(submission.prompt_token_ids) >= model.vocab_size:
        raise InvalidRequestError(
            f"the prompt has token ids outside the vocabulary of {model.vocab_size}", field="prompt"
        )
    needed = num_blocks_at_most(max_len(submission, model), model.block_size)
    num_blocks = max(worker.info.num_blocks for worker in workers)
    if needed > num_blocks:
        raise ContextLengthError(
            f"prompt and max_tokens need {needed} KV blocks, the largest worker has {num_blocks}",
            field="max_tokens",
        )


def check_queue(num_new: int, num_waiting: int, max_num_waiting: int) -> None:
    """Raise OverloadedError when `num_new` more sequences do not fit the waiting ones' bound."""
    if num_waiting + num_new > max_num_waiting:
        raise OverloadedError(
            f"{num_waiting} sequences are waiting, of at most {max_num_waiting}; try again later"
        )


def error_of(submission: Submission, workers: Seq[WorkerState]) -> PagewireError | None:
    """Return what check_fits raises, or None."""
    try:
        check_fits(submission, workers)
    except PagewireError as error:
        return error
    return None
