"""Sampling parameters of a request; checks.py bounds single fields, this module combinations."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.names.sampling_names import SAMPLING, takes_names
from pagewire_shared.sampling import checks
from pagewire_shared.sampling.beam import (
    MAX_BEAM_WIDTH,
    BeamParams,
    EarlyStopping,
    early_stopping_from,
)
from pagewire_shared.sampling.fields import CHECKED, FIELDS, NUMBERS
from pagewire_shared.sampling.pooling import check_truncation
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams

MAX_LOGPROBS = checks.MAX_LOGPROBS
MAX_SEED = checks.MAX_SEED

_NO_BEAM: Final = BeamParams()


@takes_names(SAMPLING)
@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the tokens of a request are chosen; the names and meanings are vLLM's.

    The formula is Gumbel-max over filtered logits with Philox4x32-10 noise (Salmon et al., 2011,
    "Parallel random numbers: as easy as 1, 2, 3"), so a seed gives the same text in any batch.

    Attributes:
        n: Choices per prompt: independent samples, or with use_beam_search the best sequences.
        best_of: Samples computed, of which the n with the highest log-probability per token are
            returned, as OpenAI defines it (vLLM ranks by the sum, which favours short answers);
            None for n.
        temperature: Divides the logits; 0 is greedy.
        top_p: Nucleus mass in (0, 1].
        top_k: Number of most likely tokens kept; 0 or -1 keeps all.
        min_p: Smallest probability kept, as a fraction of the largest, in [0, 1].
        seed: 64 bits, signed or not: -1 and 2**64 - 1 are one seed; drawn by the frontend when
            None.
        max_tokens: Most tokens to generate; None for the rest of the context.
        min_tokens: No stop token before this many tokens.
        stop: Texts that end a choice; the match is cut.
        stop_token_ids: Tokens that end a choice, at most 128.
        ignore_eos: Do not stop at the end-of-sequence token.
        logprobs: Alternatives reported per token; None for none at all.
        prompt_logprobs: As logprobs, for the tokens of the prompt, which is then computed without
            a cache.
        presence_penalty: Subtracted from the logits of tokens that occur in the output.
        frequency_penalty: Subtracted from the logits once per occurrence in the output.
        repetition_penalty: Divides positive and multiplies negative logits of tokens that occur
            in the prompt or the output.
        logit_bias: Added to the logits of the tokens named.
        allowed_token_ids: Only these may be sampled; empty for all.
        bad_words: Texts that may not come about, with or without a space before them.
        bad_token_sequences: The same as token ids; what bad_words become where the tokenizer is.
        structured_outputs: What the output must look like; None for anything.
        truncate_prompt_tokens: Keep only so many tokens from the end of the prompt; -1 for as many
            as the context takes.
        skip_special_tokens: Leave special tokens out of the text.
        include_stop_str_in_output: Keep the matched stop string in the text.
        use_beam_search: Beam search of width n, at most 16, in place of sampling. It is a search
            for the most likely text, so temperature must be 0 or 1 and top_p, top_k and min_p must
            keep everything. Stop strings only cut the sequences found.
        length_penalty, early_stopping: As in BeamParams; only with use_beam_search.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = field(default=())
    ignore_eos: bool = False
    logprobs: int | None = None
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    best_of: int | None = None
    use_beam_search: bool = False
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False
    prompt_logprobs: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    # No mapping has a hash; equal parameters have equal hashes without it.
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    allowed_token_ids: tuple[int, ...] = ()
    bad_words: tuple[str, ...] = ()
    bad_token_sequences: tuple[tuple[int, ...], ...] = ()
    structured_outputs: StructuredOutputsParams | None = None
    truncate_prompt_tokens: int | None = None

    def __post_init__(self) -> None:
        for name, normal in checks.NORMAL_FORMS.items():
            object.__setattr__(self, name, normal(getattr(self, name)))
        _check_bounds(self)
        if self.top_k == -1:
            object.__setattr__(self, "top_k", 0)
        if self.seed is not None:
            object.__setattr__(self, "seed", self.seed & MAX_SEED)
        _check_combinations(self)

    @property
    def beam(self) -> BeamParams | None:
        """What the beam search is asked for; None when sampling."""
        if not self.use_beam_search:
            return None
        return BeamParams(self.length_penalty, early_stopping_from(self.early_stopping))

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature == 0.0

    @property
    def has_penalties(self) -> bool:
        """Whether tokens that occurred are less likely to occur again."""
        neutral = (0.0, 0.0, 1.0)
        own = (self.presence_penalty, self.frequency_penalty, self.repetition_penalty)
        return own != neutral

    def with_(self, **changes: Any) -> "SamplingParams":
        """Return a checked copy with some fields replaced; itself where they are so already."""
        # A check of all fields costs as much as the rest of what a frontend does with them.
        for name, value in changes.items():
            own = getattr(self, name)
            if type(own) is not type(value) or own != value:
                return replace(self, **changes)
        return self

    def without_filters(self) -> "SamplingParams":
        """Return a copy with what a beam search cannot have at neutral values: a model's own
        defaults are no reason to refuse one."""
        return self.with_(**{one.name: one.beam[0] for one in NUMBERS if one.beam is not None})


def field_names() -> tuple[str, ...]:
    """Return the names of all sampling parameters."""
    return tuple(f.name for f in fields(SamplingParams))


def _check_bounds(params: SamplingParams) -> None:
    """Raise InvalidRequestError where a value has the wrong type or is out of bounds."""
    for one in CHECKED:
        one.check(getattr(params, one.name))
    check_truncation(params.truncate_prompt_tokens)
    outputs = params.structured_outputs
    if outputs is not None and not isinstance(outputs, StructuredOutputsParams):
        raise InvalidRequestError(
            "structured_outputs must be StructuredOutputsParams", field="structured_outputs"
        )


def _check_combinations(params: SamplingParams) -> None:
    """Raise InvalidRequestError where fields that are right alone do not go together."""
    if params.max_tokens is not None and params.min_tokens > params.max_tokens:
        raise InvalidRequestError(
            f"min_tokens ({params.min_tokens}) is larger than max_tokens ({params.max_tokens})",
            field="min_tokens",
        )
    beam = BeamParams(params.length_penalty, early_stopping_from(params.early_stopping))
    if params.best_of is not None and params.best_of < params.n:
        raise InvalidRequestError(
            f"best_of ({params.best_of}) is smaller than n ({params.n})", field="best_of"
        )
    if params.use_beam_search:
        _check_beam(params)
        return
    for name in ("length_penalty", "early_stopping"):
        if getattr(beam, name) != getattr(_NO_BEAM, name):
            raise InvalidRequestError(f"{name} needs use_beam_search", field=name)


def _check_beam(params: SamplingParams) -> None:
    if params.n > MAX_BEAM_WIDTH:
        raise InvalidRequestError(
            f"n is the width of a beam search, at most {MAX_BEAM_WIDTH}, got {params.n}", field="n"
        )
    if params.best_of not in (None, params.n):
        raise InvalidRequestError(
            "best_of cannot be combined with use_beam_search, whose width is n", field="best_of"
        )
    for one in FIELDS:
        name, neutral, value = one.name, one.beam, getattr(params, one.name)
        if neutral is None or value in neutral:
            continue
        if not isinstance(value, int | float):
            raise InvalidRequestError(f"{name} cannot be combined with use_beam_search", field=name)
        values = " or ".join(f"{each:g}" for each in neutral if each is not None)
        raise InvalidRequestError(
            f"{name} must be {values or 'absent'} with use_beam_search, got {value}", field=name
        )
