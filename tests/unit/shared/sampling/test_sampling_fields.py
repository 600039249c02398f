"""The table of sampling parameters agrees with the dataclass and with the message."""

from dataclasses import fields
from typing import get_args, get_type_hints

from pagewire_protos.common.v1 import sampling_pb2
from pagewire_shared.sampling.fields import FIELDS, NUMBERS
from pagewire_shared.sampling.params import SamplingParams, field_names


def test_every_parameter_has_a_row() -> None:
    names = [field.name for field in FIELDS]
    assert sorted(names) == sorted(field_names())


def test_rows_say_the_types_of_the_dataclass() -> None:
    hints = get_type_hints(SamplingParams)
    for field in FIELDS:
        is_optional = type(None) in get_args(hints[field.name])
        assert is_optional is field.is_optional, field.name
        if field.kind is not None:
            assert hints[field.name] == (field.kind | None if is_optional else field.kind)


def test_what_is_sent_are_the_fields_of_the_message() -> None:
    sent = {field.name for field in FIELDS if field.is_sent}
    assert sent == {field.name for field in sampling_pb2.SamplingParams.DESCRIPTOR.fields}


def test_neutral_values_of_a_beam_search_are_defaults() -> None:
    defaults = {item.name: item.default for item in fields(SamplingParams)}
    for field in NUMBERS:
        assert field.beam is None or defaults[field.name] in field.beam
