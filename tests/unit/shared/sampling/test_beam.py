"""Beam search, best_of and priority as parameters: bounds, combinations, the trip over the wire."""

from typing import Any

import pytest

from pagewire_protos.common.v1 import sampling_pb2
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.beam import BeamParams
from pagewire_shared.sampling.convert import beam_from_message, beam_to_message
from pagewire_shared.sampling.params import MAX_LOGPROBS, SamplingParams
from pagewire_shared.sampling.priority import check_priority

BEAM: dict[str, Any] = {"use_beam_search": True}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"best_of": 0}, "best_of"),
        ({"best_of": 129}, "best_of"),
        ({"best_of": True}, "best_of"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"use_beam_search": 1}, "use_beam_search"),
        ({"length_penalty": 2.0}, "length_penalty"),
        ({"early_stopping": True}, "early_stopping"),
        ({"early_stopping": "never"}, "early_stopping"),
        ({**BEAM, "early_stopping": "soon"}, "early_stopping"),
        ({**BEAM, "early_stopping": 1}, "early_stopping"),
        ({**BEAM, "length_penalty": float("nan")}, "length_penalty"),
        ({**BEAM, "length_penalty": 10.5}, "length_penalty"),
        ({**BEAM, "length_penalty": True}, "length_penalty"),
        ({**BEAM, "length_penalty": "1"}, "length_penalty"),
        ({**BEAM, "n": 17}, "n"),
        ({**BEAM, "n": 2, "best_of": 3}, "best_of"),
        ({**BEAM, "temperature": 0.7}, "temperature"),
        ({**BEAM, "top_p": 0.9}, "top_p"),
        ({**BEAM, "top_k": 1}, "top_k"),
        ({**BEAM, "min_p": 0.1}, "min_p"),
        ({**BEAM, "logprobs": MAX_LOGPROBS + 1}, "logprobs"),
    ],
)
def test_an_invalid_value_names_its_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**fields)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 2, "best_of": 2},
        {"n": 1, "best_of": 128, "temperature": 0},
        {"length_penalty": 1, "early_stopping": False},
        {**BEAM, "n": 1},
        {**BEAM, "n": 16, "temperature": 0, "top_k": -1, "best_of": 16},
        {**BEAM, "n": 4, "length_penalty": -10, "early_stopping": "never", "stop": ["x"]},
    ],
)
def test_valid_values_are_accepted(fields: dict[str, Any]) -> None:
    params = SamplingParams(**fields)
    assert (params.beam is not None) is bool(fields.get("use_beam_search"))


def test_a_models_own_filters_do_not_refuse_a_search() -> None:
    own = SamplingParams(temperature=0.6, top_p=0.9, top_k=20, min_p=0.05, seed=3)
    bare = own.without_filters()
    assert bare.with_(use_beam_search=True, n=4).beam == BeamParams()
    assert bare.seed == 3


@pytest.mark.parametrize("early_stopping", [True, False, None])
def test_wire_round_trip(early_stopping: bool | None) -> None:
    params = BeamParams(length_penalty=0.1, early_stopping=early_stopping)
    assert beam_from_message(beam_to_message(params)) == params


def test_an_empty_message_means_the_defaults() -> None:
    assert beam_from_message(sampling_pb2.BeamSearch()) == BeamParams(1.0, False)


def test_messages_are_checked_as_well() -> None:
    with pytest.raises(InvalidRequestError) as penalty:
        beam_from_message(sampling_pb2.BeamSearch(length_penalty=11))
    assert penalty.value.field == "length_penalty"
    with pytest.raises(InvalidRequestError) as stopping:
        beam_from_message(sampling_pb2.BeamSearch(early_stopping=9))  # type: ignore[arg-type]
    assert stopping.value.field == "early_stopping"


@pytest.mark.parametrize("value", [-101, 101])
def test_priority_has_bounds(value: int) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        check_priority(value)
    assert caught.value.field == "priority"
    assert [check_priority(edge) for edge in (-100, 0, 100)] == [-100, 0, 100]
