"""Accounts of tenants by model: waiting sequences and memory, updated with every change so that no
walk is needed. `core.queueing.overload` applies the limits."""

from typing import Final

from pagewire_scheduler.core.data.account import Cost
from pagewire_scheduler.core.data.submission import Submission
from pagewire_scheduler.core.state.request import Request, Sequence
from pagewire_shared.sampling.params import SamplingParams

TOKENS_AHEAD: Final = 256
"""Output tokens of a choice that are counted before they have come."""

# A token in an array("I"), with the sixteenth that an array keeps free behind its end, rounded up.
_TOKEN_BYTES: Final = 5
# Three arrays per position, and two more per alternative, with the same sixteenth.
_LOGPROB_BYTES: Final = 13
_ALTERNATIVE_BYTES: Final = 9
# A token of a beam, and of a hypothesis that has ended, which is a tuple.
_BEAM_TOKEN_BYTES: Final = _TOKEN_BYTES + 40
# Objects of a request and of each choice; an int of a parameter; a float of a prompt's pieces.
_REQUEST_BYTES: Final = 4096
_CHOICE_BYTES: Final = 2048
_INT_BYTES: Final = 36
_PROMPT_VALUE_BYTES: Final = 8
_VECTOR_BYTES: Final = 2**14
# A frontend always says; this is for one that does not.
_UNKNOWN_OUTPUT: Final = 2**17


def count_waiting(sequence: Sequence, sign: int) -> None:
    """Count `sequence`, a choice of a request, as entering a queue (+1) or leaving it (-1)."""
    account = sequence.request.account
    if account is not None:
        num_sequences = 1 + len(sequence.branch.followers)
        account.note_waiting(sign * num_sequences, sign * len(sequence.tokens))


def count_follower_gone(sequence: Sequence) -> None:
    """Count the end of `sequence`, which followed a queued choice."""
    account = sequence.request.account
    if account is not None:
        account.note_waiting(-1, 0)


def begin_counting(request: Request) -> None:
    """Count the tokens of each choice that the cost of `request` includes."""
    for sequence in request.sequences:
        sequence.num_counted = len(sequence.tokens) + TOKENS_AHEAD


def count_more(sequence: Sequence) -> None:
    """Charge more output of `sequence`, which is longer than the charged length."""
    sequence.num_counted += TOKENS_AHEAD
    _charge(sequence.request, TOKENS_AHEAD * bytes_per_token(sequence.request.submission))


def count_search(request: Request) -> None:
    """Charge more output of a beam search whose beams have grown by a token."""
    first, *others = request.sequences
    longest = max(len(first.tokens), *(len(one.tokens) for one in others), 0)
    if longest > first.num_counted:
        first.num_counted += TOKENS_AHEAD
        per_token = bytes_per_token(request.submission) * len(request.sequences)
        _charge(request, TOKENS_AHEAD * per_token)


def _charge(request: Request, num_bytes: int) -> None:
    # A search that starts over counts anew what is counted already.
    more = min(num_bytes, request.bytes_at_most - request.num_bytes)
    if request.account is not None and more > 0:
        request.num_bytes += more
        request.account.note_growth(more)


def bytes_per_token(submission: Submission) -> int:
    """Return the memory that a token of one choice's output takes."""
    if submission.beam_search is not None:
        return _BEAM_TOKEN_BYTES
    num_top = submission.sampling.logprobs
    if num_top is None:
        return _TOKEN_BYTES
    return _TOKEN_BYTES + _LOGPROB_BYTES + num_top * _ALTERNATIVE_BYTES


def cost_of(submission: Submission) -> Cost:
    """Return the waiting and held amounts that a request adds, with TOKENS_AHEAD tokens of each
    output.
    """
    num_prompt, num_choices = len(submission.prompt_token_ids), len(submission.emitted)
    sampling, per_token = submission.sampling, bytes_per_token(submission)
    num_reported = 0 if sampling.prompt_logprobs is None else 1 + sampling.prompt_logprobs
    # The prompt as it came, with each choice, and once more while another worker computes it.
    held = _REQUEST_BYTES + num_choices * _CHOICE_BYTES + _parameter_bytes(sampling)
    held += len(submission.predicted_token_ids) * _TOKEN_BYTES
    held += num_prompt * (_TOKEN_BYTES * (2 + num_choices) + num_reported * _PROMPT_VALUE_BYTES)
    emitted = [len(token_ids) for token_ids in submission.emitted]
    held += sum(emitted) * (_TOKEN_BYTES + per_token)
    num_output = _UNKNOWN_OUTPUT if sampling.max_tokens is None else sampling.max_tokens
    if submission.pooling is not None:
        num_rows = num_prompt if submission.pooling.kind == "tokens" else 1
        held, num_output = held + num_rows * _VECTOR_BYTES, 0
    left = [max(0, num_output - length) for length in emitted]
    ahead = sum(min(length, TOKENS_AHEAD) for length in left)
    return Cost(
        num_choices - sum(submission.is_finished),
        num_prompt + sum(emitted),
        held + ahead * per_token,
        held + sum(left) * per_token,
    )


def _parameter_bytes(sampling: SamplingParams) -> int:
    num_ints = len(sampling.stop_token_ids) + len(sampling.allowed_token_ids)
    num_ints += 2 * len(sampling.logit_bias) + sum(map(len, sampling.bad_token_sequences))
    grammar = sampling.structured_outputs
    return num_ints * _INT_BYTES + (len(grammar.text) if grammar is not None else 0)
