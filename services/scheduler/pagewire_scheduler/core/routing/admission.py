"""Admission checks: refuses requests that no worker of their model could ever run.
`core.queueing.overload` refuses requests that are too many."""

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from itertools import chain

from pagewire_scheduler.core.data.plan_bytes import check_conditions
from pagewire_scheduler.core.data.submission import Submission
from pagewire_scheduler.core.data.worker_info import ModelInfo
from pagewire_scheduler.core.state.capacity import (
    MAX_VECTOR_BYTES,
    num_blocks_of_submission,
    num_vector_bytes,
)
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_shared.errors import ContextLengthError, InvalidRequestError, PagewireError
from pagewire_shared.sampling.beam import MAX_BEAM_CANDIDATES
from pagewire_shared.sampling.pooling import PoolingParams
from pagewire_shared.sampling.priority import check_priority


def check_submission(submission: Submission) -> None:
    """Raise InvalidRequestError for a request that is invalid for every model."""
    if not submission.prompt_token_ids:
        raise InvalidRequestError("the prompt is empty", field="prompt")
    if not submission.emitted or len(submission.emitted) != len(submission.is_finished):
        raise InvalidRequestError("emitted must have one entry per choice", field="emitted")
    check_priority(submission.priority)
    check_conditions(submission)
    if submission.beam_search is not None and any(submission.emitted):
        raise InvalidRequestError("a beam search emits nothing before its end", field="emitted")
    if submission.pooling is not None:
        _check_pooling(submission)


def check_fits(submission: Submission, workers: Seq[WorkerState]) -> None:
    """Raise the error of a `submission` that can never run on `workers` of its model."""
    model = workers[0].info.model
    length = len(submission.prompt_token_ids)
    if submission.pooling is not None:
        _check_outcome(submission, submission.pooling, model)
        if length > model.max_model_len:
            raise ContextLengthError(
                f"the input has {length} tokens, more than the context of {model.max_model_len}",
                field="input",
            )
    elif model.is_encoder:
        raise InvalidRequestError(
            f"{model.name} is an encoder: it generates nothing", field="model"
        )
    elif length + 1 > model.max_model_len:
        raise ContextLengthError(
            f"the prompt has {length} tokens; with at least one to generate that is more than the "
            f"context of {model.max_model_len}",
            field="prompt",
        )
    _check_vocabulary(submission, model.vocab_size)
    if submission.adapter:
        workers = [worker for worker in workers if worker.info.max_adapters]
        if not workers:
            raise InvalidRequestError(
                f"no worker of {model.name} takes adapters: start workers with --enable-lora",
                field="adapter",
            )
    roomy = [
        worker
        for worker in workers
        if num_blocks_of_submission(submission, worker.info) <= worker.info.num_blocks
    ]
    if not roomy:
        largest = max(workers, key=lambda worker: worker.info.num_blocks).info
        is_pooling = submission.pooling is not None
        subject = "the input needs" if is_pooling else "prompt and max_tokens need"
        raise ContextLengthError(
            f"{subject} {num_blocks_of_submission(submission, largest)} KV blocks, the "
            f"largest worker has {largest.num_blocks}",
            field="input" if is_pooling else "max_tokens",
        )
    if submission.beam_search is not None:
        _check_beams(submission, roomy)


def _check_pooling(submission: Submission) -> None:
    if len(submission.emitted) != 1 or submission.emitted[0] or submission.beam_search is not None:
        raise InvalidRequestError("a request that pools has one choice and no tokens", field="kind")
    sampling = submission.sampling
    if sampling.prompt_logprobs is not None or sampling.structured_outputs is not None:
        raise InvalidRequestError("a request that pools samples nothing", field="sampling")


def _check_outcome(submission: Submission, pooling: PoolingParams, model: ModelInfo) -> None:
    """Raise InvalidRequestError for vectors or scores that the model does not make."""
    if pooling.kind == "scores":
        if not model.num_labels:
            raise InvalidRequestError(f"{model.name} has no classification head", field="model")
        return
    if not model.embedding_size:
        raise InvalidRequestError(f"{model.name} makes no vectors", field="model")
    if pooling.kind in ("tokens", "cls") and not model.is_encoder:
        raise InvalidRequestError(
            f"pooling {pooling.kind!r} needs an encoder, which {model.name} is not", field="pooling"
        )
    num_bytes = num_vector_bytes(submission, model)
    if num_bytes > MAX_VECTOR_BYTES:
        raise ContextLengthError(
            f"the vectors of {len(submission.prompt_token_ids)} tokens take {num_bytes} bytes, "
            f"more than {MAX_VECTOR_BYTES}",
            field="input",
        )


def _check_vocabulary(submission: Submission, vocab_size: int) -> None:
    """Raise InvalidRequestError for ids outside the vocabulary of the model.

    End-of-sequence ids may lie outside: they are the model's own, and an id that is never sampled
    ends nothing.
    """
    sampling, highest = submission.sampling, submission.highest_prompt_id
    prompt = submission.prompt_token_ids if highest is None else (highest,)
    emitted = (token_id for choice in submission.emitted for token_id in choice)
    checked: tuple[tuple[str, str, Iterable[int]], ...] = (
        ("prompt", "the prompt has", prompt),
        ("emitted", "emitted has", emitted),
        ("stop_token_ids", "stop_token_ids has", sampling.stop_token_ids),
        ("logit_bias", "logit_bias has", sampling.logit_bias),
        ("allowed_token_ids", "allowed_token_ids has", sampling.allowed_token_ids),
        ("bad_words", "bad_words have", chain.from_iterable(sampling.bad_token_sequences)),
    )
    for field, subject, token_ids in checked:
        if max(token_ids, default=0) >= vocab_size:
            raise InvalidRequestError(
                f"{subject} token ids outside the vocabulary of {vocab_size}", field=field
            )


def error_of(submission: Submission, workers: Seq[WorkerState]) -> PagewireError | None:
    """Return the error that check_fits raises, or None."""
    try:
        check_fits(submission, workers)
    except PagewireError as error:
        return error
    return None


def admit(sequence: Sequence, workers: Seq[WorkerState]) -> PagewireError | None:
    """Check the request, once, as soon as its model has a worker; return the error of a misfit."""
    request, error = sequence.request, None
    if workers and not request.is_admitted:
        error = error_of(request.submission, workers)
        request.is_admitted = error is None
    return error


def _check_beams(submission: Submission, workers: Seq[WorkerState]) -> None:
    """Check a beam search against the workers that have enough blocks for it."""
    width = len(submission.emitted)
    num_slots = max(len(worker.slots) for worker in workers)
    if width > num_slots:
        raise InvalidRequestError(
            f"{width} beams are more than the {num_slots} sequences that a worker runs at once",
            field="n",
        )
    sampling = submission.sampling
    eos_token_ids = () if sampling.ignore_eos else submission.eos_token_ids
    ends = {*sampling.stop_token_ids, *eos_token_ids}
    # As BeamSearch.num_candidates: a worker refuses a plan with more, and cuts off the stream.
    if width + len(ends) > MAX_BEAM_CANDIDATES:
        raise InvalidRequestError(
            f"{width} beams and {len(ends)} end tokens need {width + len(ends)} candidates per "
            f"beam, more than {MAX_BEAM_CANDIDATES}",
            field="stop_token_ids",
        )
    vocab_size = workers[0].info.model.vocab_size
    if width + len(ends) > vocab_size:
        raise InvalidRequestError(
            f"{width} beams and {len(ends)} end tokens are more than the vocabulary of "
            f"{vocab_size}",
            field="n",
        )
