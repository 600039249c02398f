"""The table of sampling parameters: type, bounds, wire form and HTTP bodies of each.

Checks, the proto conversion, the HTTP bodies and the worker's columns follow from the table.
"""

from dataclasses import dataclass
from enum import Flag
from functools import cache
from typing import Any, Final

from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.beam import EarlyStopping
from pagewire_shared.sampling.checks import (
    MAX_CHOICES,
    MAX_INT,
    MAX_LOGPROBS,
    MAX_PENALTY,
    MAX_REPETITION_PENALTY,
    MAX_SEED,
    MIN_SEED,
    check_float,
    check_int,
)


class HttpBodies(Flag):
    """HTTP bodies that have a parameter under its own name and with its own meaning."""

    NONE = 0
    OPENAI = 1
    """Chat completions and completions."""
    RESPONSES = 2
    ALL = OPENAI | RESPONSES


@dataclass(frozen=True, slots=True)
class SamplingField:
    """One parameter of SamplingParams; its default is that of the dataclass.

    Attributes:
        name: In SamplingParams, on the wire and in HTTP bodies.
        kind: int, float or bool; None for any other type, which has code of its own.
        bounds: Smallest and largest value of a number; None where other code checks them.
        is_open: The smallest value itself is out of bounds.
        is_optional: None is allowed.
        is_sent: A field of the SamplingParams message. Values of no kind are converted apart.
        bodies: The bodies that have the field, from which the value is copied.
        body_type: Type of the value in these bodies, beside null; None for the kind.
        beam: Values allowed with use_beam_search, the neutral one first; None for all.
    """

    name: str
    kind: type[int] | type[float] | None = None
    bounds: tuple[float, float] | None = None
    is_open: bool = False
    is_optional: bool = False
    is_sent: bool = False
    bodies: HttpBodies = HttpBodies.NONE
    body_type: Any = None
    beam: tuple[Any, ...] | None = None

    def check(self, value: object) -> None:
        """Raise InvalidRequestError unless `value` is of the kind and within the bounds."""
        if self.is_optional and value is None:
            return
        if self.kind is bool and not isinstance(value, bool):
            raise InvalidRequestError(f"{self.name} must be true or false", field=self.name)
        if self.bounds is not None and self.kind is int:
            check_int(self.name, value, *self.bounds)
        elif self.bounds is not None:
            check_float(self.name, value, *self.bounds, is_open=self.is_open)


_F = SamplingField
_OPENAI, _ALL = HttpBodies.OPENAI, HttpBodies.ALL

FIELDS: Final = (
    _F("n", int, (1, MAX_CHOICES), bodies=_OPENAI),
    _F("best_of", int, (1, MAX_CHOICES), is_optional=True, bodies=_OPENAI),
    _F("temperature", float, (0.0, 2.0), is_sent=True, bodies=_ALL, beam=(0.0, 1.0)),
    _F("top_p", float, (0.0, 1.0), is_open=True, is_sent=True, bodies=_ALL, beam=(1.0,)),
    _F("top_k", int, (-1, MAX_INT), is_sent=True, bodies=_ALL, beam=(0,)),
    _F("min_p", float, (0.0, 1.0), is_sent=True, bodies=_ALL, beam=(0.0,)),
    _F("seed", int, (MIN_SEED, MAX_SEED), is_optional=True, is_sent=True, bodies=_ALL),
    _F("max_tokens", int, (1, MAX_INT), is_optional=True, is_sent=True),
    _F("min_tokens", int, (0, MAX_INT), is_sent=True, bodies=_ALL),
    _F("stop", bodies=_ALL, body_type=str | list[str]),
    _F("stop_token_ids", is_sent=True, bodies=_ALL, body_type=list[int]),
    _F("ignore_eos", bool, is_sent=True, bodies=_ALL),
    _F("skip_special_tokens", bool, bodies=_ALL),
    _F("include_stop_str_in_output", bool, bodies=_ALL),
    _F("use_beam_search", bool, bodies=_OPENAI),
    _F("length_penalty", float, bodies=_OPENAI),
    _F("early_stopping", bodies=_OPENAI, body_type=EarlyStopping),
    _F(
        "presence_penalty",
        float,
        (-MAX_PENALTY, MAX_PENALTY),
        is_sent=True,
        bodies=_ALL,
        beam=(0.0,),
    ),
    _F(
        "frequency_penalty",
        float,
        (-MAX_PENALTY, MAX_PENALTY),
        is_sent=True,
        bodies=_ALL,
        beam=(0.0,),
    ),
    _F(
        "repetition_penalty",
        float,
        (0.0, MAX_REPETITION_PENALTY),
        is_open=True,
        is_sent=True,
        bodies=_ALL,
        beam=(1.0,),
    ),
    _F("logit_bias", is_sent=True, beam=({},)),
    _F("allowed_token_ids", is_sent=True, bodies=_OPENAI, body_type=list[int], beam=((),)),
    _F("bad_words", bodies=_OPENAI, body_type=list[str], beam=((),)),
    _F("bad_token_sequences", is_sent=True, beam=((),)),
    _F("structured_outputs", is_sent=True, is_optional=True, beam=(None,)),
    _F("logprobs", int, (0, MAX_LOGPROBS), is_optional=True, is_sent=True),
    _F(
        "prompt_logprobs",
        int,
        (0, MAX_LOGPROBS),
        is_optional=True,
        is_sent=True,
        bodies=_OPENAI,
        beam=(None,),
    ),
    _F("truncate_prompt_tokens", int, is_optional=True, bodies=_OPENAI),
)
"""A search with several values that cannot be combined with it is refused for the first row."""

_CHECK_ORDER: Final = ((int, False), (int, True), (float, False), (bool, False))

CHECKED: Final = tuple(
    sorted(
        (field for field in FIELDS if field.bounds is not None or field.kind is bool),
        key=lambda field: _CHECK_ORDER.index((field.kind, field.is_optional)),
    )
)
"""Numbers and flags in the order of their checks: the first that is wrong refuses a request."""

SENT: Final = tuple(field for field in FIELDS if field.is_sent and field.kind is not None)
"""Parameters that are one number or flag on the wire."""

NUMBERS: Final = tuple(f for f in SENT if f.kind is not bool and not f.is_optional)
"""Parameters that are always one number on the worker."""


@cache
def copied_names(body: HttpBodies) -> tuple[str, ...]:
    """Return the parameters whose values are copied from `body`."""
    return tuple(field.name for field in FIELDS if body in field.bodies)
