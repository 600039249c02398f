"""Creates requests and their sequences from submissions."""

from array import array

from pagewire_scheduler.core.data.moments import Moments
from pagewire_scheduler.core.data.submission import Submission
from pagewire_scheduler.core.data.token_logprobs import OutputLogprobs
from pagewire_scheduler.core.state.request import Request, Sequence
from pagewire_scheduler.core.state.sequence_parts import Fairness, Outcome


def create_request(
    submission: Submission, frontend_id: bytes, arrival: int, rank: float
) -> Request:
    """Return a request with one WAITING sequence per choice."""
    sampling = submission.sampling
    request = Request(
        submission=submission,
        frontend_id=frontend_id,
        handle=submission.handle,
        arrival=arrival,
        rank=rank,
        stop_ids=frozenset(sampling.stop_token_ids),
        eos_ids=frozenset() if sampling.ignore_eos else frozenset(submission.eos_token_ids),
        weights=submission.weights,
        moments=Moments() if submission.is_traced else None,
        grammar_key=(sampling.structured_outputs.digest if sampling.structured_outputs else None),
    )
    request.sequences = create_sequences(request)
    return request


def create_sequences(request: Request, num_preemptions: int = 0) -> list[Sequence]:
    """Return the sequences of a request that has none, or whose beam search starts again."""
    max_len = request.sequences[0].max_len if request.sequences else 2**31
    submission, sequences = request.submission, []
    prompt = submission.prompt_token_ids
    for choice, emitted in enumerate(submission.emitted):
        has_logprobs = submission.sampling.logprobs is not None and not request.is_beam
        # Log-probabilities of an earlier life stay with the frontend, which has them already.
        logprobs = OutputLogprobs(len(emitted)) if has_logprobs else None
        sequence = Sequence(
            request=request,
            choice=choice,
            tokens=array("I", prompt) + array("I", emitted),
            num_prompt=len(prompt),
            key=(request.rank, request.arrival, choice),
            is_beam=request.is_beam,
            is_pooling=request.is_pooling,
            has_logprobs=has_logprobs,
            outcome=Outcome(logprobs),
            end_ids=request.stop_ids | request.eos_ids,
            max_len=max_len,
            fairness=Fairness(num_preemptions=num_preemptions),
        )
        sequences.append(sequence)
    return sequences
