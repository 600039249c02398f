"""SamplingParams takes every field of vLLM: it works, changes nothing, or is refused by name."""

import enum
import logging
from dataclasses import fields, replace
from typing import Any

import pytest

from pagewire import GuidedDecodingParams
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.names.foreign_name import ForeignName, NameState, shown
from pagewire_shared.names.sampling_names import SAMPLING, STRUCTURED
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams

DEFAULTS = SamplingParams()
CHOICE = StructuredOutputsParams(choice=("a",))


class OutputKind(enum.Enum):
    """As in vLLM."""

    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


def name_of(row: ForeignName) -> str:
    return row.name


def made(row: ForeignName, value: Any) -> object:
    if row in SAMPLING:
        return SamplingParams(**{row.name: value})
    return StructuredOutputsParams(choice=("a",), **{row.name: value})


@pytest.mark.parametrize("row", [*SAMPLING, *STRUCTURED], ids=name_of)
def test_every_row_does_what_it_says(row: ForeignName, caplog: pytest.LogCaptureFixture) -> None:
    plain = DEFAULTS if row in SAMPLING else CHOICE
    if row.state is NameState.WORKS:
        assert row.here in {item.name for item in fields(plain)}  # type: ignore[arg-type]
    elif row.state is NameState.NO_EFFECT:
        caplog.set_level(logging.WARNING)
        assert made(row, False) == made(row, 1) == made(row, None) == plain
        lines = [r.message for r in caplog.records]
        # Logged once per process, which another test may have seen.
        assert lines in ([], [f"{row.name} has no effect: {row.text}"])
    else:
        with pytest.raises(InvalidRequestError, match=row.name) as caught:
            made(row, "x")
        assert caught.value.field == row.name
        assert row.text in caught.value.message
        assert made(row, None) == plain
        for value in row.neutral:
            assert made(row, value) == plain


def test_guided_decoding_is_structured_outputs() -> None:
    guided = GuidedDecodingParams(choice=["a"], backend="xgrammar", disable_fallback=True)
    params = SamplingParams(guided_decoding=guided, detokenize=True, max_tokens=3)
    assert params == SamplingParams(structured_outputs=CHOICE, max_tokens=3)
    assert SamplingParams(guided_decoding=None) == DEFAULTS
    assert replace(params, max_tokens=4).structured_outputs == CHOICE


def test_objects_are_compared_by_their_value() -> None:
    for kind in (OutputKind.CUMULATIVE, OutputKind.FINAL_ONLY):
        assert SamplingParams(output_kind=kind) == DEFAULTS
    with pytest.raises(InvalidRequestError, match="AsyncClient streams"):
        SamplingParams(output_kind=OutputKind.DELTA)
    assert SamplingParams(logits_processors=[], extra_args={}) == DEFAULTS
    assert [shown(value) for value in (4.0, "4", True, None, "torch.Half", {}, 0.25)] == [
        *("4", "4", "true", "none", "half", "{}", "0.25")
    ]


def test_an_unknown_field_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="no_such_field"):
        SamplingParams(no_such_field=1)
    with pytest.raises(TypeError, match="no_such_field"):
        SamplingParams(no_such_field=1, detokenize=True)
    with pytest.raises(TypeError):
        SamplingParams(0.5)
