"""SamplingParams: bounds, names in errors, and the trip over the wire."""

from typing import Any

import pytest

from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.checks import MAX_STOP_TOKEN_IDS
from pagewire_shared.sampling.convert import sampling_from_message, sampling_to_message
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", float("nan")),
        ("temperature", "warm"),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("min_p", 1.1),
        ("top_k", -2),
        ("top_k", 1.5),
        ("n", 0),
        ("n", True),
        ("seed", -(2**63) - 1),
        ("seed", 2**64),
        ("max_tokens", 0),
        ("logprobs", 21),
        ("stop", ["a", "b", "c", "d", "e"]),
        ("stop", [""]),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", range(MAX_STOP_TOKEN_IDS + 1)),
        ("ignore_eos", 1),
    ],
)
def test_bad_value_names_the_field(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**{field: value})
    assert caught.value.field == field


def test_min_tokens_above_max_tokens() -> None:
    with pytest.raises(InvalidRequestError, match="min_tokens"):
        SamplingParams(min_tokens=5, max_tokens=4)


def test_spellings_are_normalised() -> None:
    params = SamplingParams(stop="end", top_k=-1, stop_token_ids=[3])  # type: ignore[arg-type]
    assert params.stop == ("end",)
    assert params.top_k == 0
    assert params.stop_token_ids == (3,)
    assert SamplingParams(seed=-1).seed == 2**64 - 1
    most = tuple(range(MAX_STOP_TOKEN_IDS))
    assert SamplingParams(stop_token_ids=most).stop_token_ids == most


def test_wire_round_trip() -> None:
    params = SamplingParams(
        temperature=0.1,
        top_p=0.9,
        top_k=5,
        min_p=0.05,
        seed=2**64 - 1,
        max_tokens=7,
        min_tokens=2,
        ignore_eos=True,
        stop_token_ids=(1, 2),
        logprobs=3,
        prompt_logprobs=0,
        presence_penalty=0.3,
        frequency_penalty=-0.7,
        repetition_penalty=1.1,
        logit_bias={3: -100.0, 5: 0.1},
        allowed_token_ids=(1, 2, 3),
        bad_token_sequences=((1,), (2, 3)),
        structured_outputs=StructuredOutputsParams(regex="[a-z]+"),
    )
    assert sampling_from_message(sampling_to_message(params), defaults=SamplingParams()) == params


def test_absent_fields_keep_the_defaults() -> None:
    from pagewire_protos.common.v1 import sampling_pb2

    defaults = SamplingParams(temperature=0.3, max_tokens=None)
    assert sampling_from_message(sampling_pb2.SamplingParams(), defaults=defaults) == defaults
