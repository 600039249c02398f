"""Computes the blocks that a sequence needs at most, and whether it fits on a worker."""

from typing import Final

from pagewire_scheduler.core.data.submission import Submission
from pagewire_scheduler.core.data.worker_info import ModelInfo, WorkerInfo
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import WorkerState

MAX_VECTOR_BYTES: Final = 2**22
"""Of the vectors that one step returns: a message has an end, and others wait behind it."""


def num_vector_bytes(submission: Submission, model: ModelInfo) -> int:
    """Return the bytes of the vectors or class scores of a request that pools; 0 for others."""
    if submission.pooling is None:
        return 0
    num_tokens = len(submission.prompt_token_ids)
    return 4 * submission.pooling.num_values(num_tokens, model.embedding_size, model.num_labels)


def max_len(submission: Submission, model: ModelInfo) -> int:
    """Return the length in tokens at which a sequence of `submission` ends with LENGTH."""
    if submission.pooling is not None:
        return len(submission.prompt_token_ids) + 1  # its outcome counts as a token
    limit = submission.sampling.max_tokens
    rest = model.max_model_len - len(submission.prompt_token_ids)
    return len(submission.prompt_token_ids) + (rest if limit is None else min(limit, rest))


def num_blocks_at_most(length: int, block_size: int) -> int:
    """Return the blocks that a sequence ending at `length` tokens ever holds.

    The last token's keys and values are never written.
    """
    return -(-(length - 1) // block_size)


def num_blocks_ever(worker: WorkerState, sequence: Sequence) -> int:
    """Return the blocks that `sequence`, or the search it belongs to, holds at most on `worker`."""
    if sequence.is_prefill:
        block_size = worker.info.model.block_size
        num_blocks = num_blocks_at_most(sequence.max_len, block_size)
        return worker.info.groups.most_blocks(num_blocks, block_size)
    return num_blocks_of_submission(sequence.request.submission, worker.info)


def num_blocks_of_submission(submission: Submission, info: WorkerInfo) -> int:
    """Return the most blocks that one sequence of `submission`, or its whole search, holds."""
    block_size, groups = info.model.block_size, info.groups
    num_blocks = num_blocks_at_most(max_len(submission, info.model), block_size)
    if submission.beam_search is not None:
        # Beams have the full blocks of the prompt in common, and nothing else in the worst case.
        num_common = min(num_blocks, len(submission.prompt_token_ids) // block_size)
        num_blocks = num_common + len(submission.emitted) * (num_blocks - num_common)
        return num_blocks * len(groups)
    return groups.most_blocks(num_blocks, block_size)


def fits(worker: WorkerState, sequence: Sequence) -> bool:
    """Return whether `sequence` can run to its end on `worker` when it runs alone."""
    submission = sequence.request.submission
    num_slots = len(submission.emitted) if submission.beam_search is not None else 1
    return (
        len(sequence.tokens) + (not sequence.is_pooling) <= worker.info.model.max_model_len
        and num_slots <= len(worker.slots)
        and (worker.info.max_adapters > 0 or not submission.adapter)
        and num_blocks_ever(worker, sequence) <= worker.info.num_blocks
    )


def num_blocks_to_start(worker: WorkerState, sequence: Sequence) -> int:
    """Return the blocks that a start needs: all blocks it may ever need, if the sequence was
    preempted too often.
    """
    needed = num_blocks_ever(worker, sequence)
    if sequence.fairness.num_preemptions >= MAX_PREEMPTIONS:
        return needed
    block_size = worker.info.model.block_size
    first = worker.info.groups.most_blocks(-(-sequence.num_to_hold // block_size), block_size)
    return min(needed, first)


MAX_PREEMPTIONS: Final = 3
