"""Sampling parameters as plain data, with the one place that checks them. Owns no sampling."""

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any

from pagewire_shared.beam import MAX_BEAM_WIDTH, BeamParams, EarlyStopping, early_stopping_from
from pagewire_shared.errors import InvalidRequestError

MAX_LOGPROBS = 20
MAX_STOP_STRINGS = 4
MAX_STOP_TOKEN_IDS = 128
MIN_SEED = -(2**63)
MAX_SEED = 2**64 - 1


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", _as_stop(self.stop))
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids or ()))
        for name, (low, high) in _INT_BOUNDS.items():
            value = getattr(self, name)
            if value is not None or name not in _OPTIONAL:
                _check_int(name, value, low, high)
        for name, (low_f, high_f, low_open) in _FLOAT_BOUNDS.items():
            _check_float(name, getattr(self, name), low_f, high_f, low_open)
        for name in _BOOLS:
            if not isinstance(getattr(self, name), bool):
                raise InvalidRequestError(f"{name} must be true or false", field=name)
        if self.logprobs is not None:
            _check_int("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        _check_stop_token_ids(self.stop_token_ids)
        if self.top_k == -1:
            object.__setattr__(self, "top_k", 0)
        if self.seed is not None:
            object.__setattr__(self, "seed", self.seed & MAX_SEED)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidRequestError(
                f"min_tokens ({self.min_tokens}) is larger than max_tokens ({self.max_tokens})",
                field="min_tokens",
            )
        _check_choices(self)

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

    def with_(self, **changes: Any) -> "SamplingParams":
        """Return a checked copy with some fields replaced."""
        return replace(self, **changes)

    def without_filters(self) -> "SamplingParams":
        """Return a copy with what a beam search cannot have at neutral values: a model's own
        defaults are no reason to refuse one."""
        return self.with_(temperature=0.0, top_p=1.0, top_k=0, min_p=0.0)


_OPTIONAL = {"seed", "max_tokens", "best_of"}
_BOOLS = ("ignore_eos", "skip_special_tokens", "include_stop_str_in_output", "use_beam_search")
_INT_BOUNDS: dict[str, tuple[int, int]] = {
    "n": (1, 128),
    "best_of": (1, 128),
    "top_k": (-1, 2**31 - 1),
    "seed": (MIN_SEED, MAX_SEED),
    "max_tokens": (1, 2**31 - 1),
    "min_tokens": (0, 2**31 - 1),
}
_FLOAT_BOUNDS: dict[str, tuple[float, float, bool]] = {
    "temperature": (0.0, 2.0, False),
    "top_p": (0.0, 1.0, True),
    "min_p": (0.0, 1.0, False),
}

# Values of a beam search that change nothing in it.
_BEAM_NEUTRAL: dict[str, tuple[float, ...]] = {
    "temperature": (0.0, 1.0),
    "top_p": (1.0,),
    "top_k": (0,),
    "min_p": (0.0,),
}


def _check_choices(params: SamplingParams) -> None:
    """Check what how many choices there are and how they come about have to do with each other."""
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


_NO_BEAM = BeamParams()


def _check_beam(params: SamplingParams) -> None:
    if params.n > MAX_BEAM_WIDTH:
        raise InvalidRequestError(
            f"n is the width of a beam search, at most {MAX_BEAM_WIDTH}, got {params.n}", field="n"
        )
    if params.best_of not in (None, params.n):
        raise InvalidRequestError(
            "best_of cannot be combined with use_beam_search, whose width is n", field="best_of"
        )
    for name, neutral in _BEAM_NEUTRAL.items():
        if getattr(params, name) not in neutral:
            values = " or ".join(f"{value:g}" for value in neutral)
            raise InvalidRequestError(
                f"{name} must be {values} with use_beam_search, got {getattr(params, name)}",
                field=name,
            )


def _as_stop(stop: object) -> tuple[str, ...]:
    values = (stop,) if isinstance(stop, str) else tuple(stop or ())  # type: ignore[arg-type]
    if len(values) > MAX_STOP_STRINGS:
        raise InvalidRequestError(
            f"stop takes at most {MAX_STOP_STRINGS} strings, got {len(values)}", field="stop"
        )
    if not all(isinstance(value, str) and value for value in values):
        raise InvalidRequestError("stop must hold non-empty strings", field="stop")
    return values


def _check_stop_token_ids(token_ids: tuple[int, ...]) -> None:
    if len(token_ids) > MAX_STOP_TOKEN_IDS:
        raise InvalidRequestError(
            f"stop_token_ids takes at most {MAX_STOP_TOKEN_IDS} ids, got {len(token_ids)}",
            field="stop_token_ids",
        )
    for token_id in token_ids:
        _check_int("stop_token_ids", token_id, 0, 2**32 - 1)


def _check_int(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidRequestError(
            f"{name} must be an integer, got {type(value).__name__}", field=name
        )
    if not low <= value <= high:
        raise InvalidRequestError(
            f"{name} must be between {low} and {high}, got {value}", field=name
        )


def _check_float(name: str, value: object, low: float, high: float, low_open: bool) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidRequestError(f"{name} must be a number, got {value!r}", field=name)
    if not low <= value <= high or (low_open and value == low):
        bracket = "(" if low_open else "["
        raise InvalidRequestError(
            f"{name} must be in {bracket}{low}, {high}], got {value}", field=name
        )


def field_names() -> tuple[str, ...]:
    """Return the names of all sampling parameters."""
    return tuple(f.name for f in fields(SamplingParams))
