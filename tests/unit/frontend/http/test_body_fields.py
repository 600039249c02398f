"""HTTP bodies have the sampling parameters that the table gives them, and no others."""

from types import NoneType
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from pagewire_frontend.http.body_fields import given_sampling
from pagewire_frontend.http.openai.schemas import ChatBody, CompletionBody, GenerationBody
from pagewire_frontend.http.responses.schemas import ResponsesBody
from pagewire_shared.sampling.fields import FIELDS, HttpBodies, copied_names
from pagewire_shared.sampling.params import field_names

BODIES: dict[type[Any], HttpBodies] = {
    ChatBody: HttpBodies.OPENAI,
    CompletionBody: HttpBodies.OPENAI,
    ResponsesBody: HttpBodies.RESPONSES,
}
# Fields of these names have a meaning, a default or a form of their own in the class itself.
OWN = {
    HttpBodies.OPENAI: {"max_tokens", "logprobs", "logit_bias", "structured_outputs"},
    HttpBodies.RESPONSES: set(),
}


@pytest.mark.parametrize("cls", BODIES)
def test_a_body_has_the_parameters_of_the_table(cls):
    names = cls.model_fields.keys() & set(field_names())
    assert names - OWN[BODIES[cls]] == set(copied_names(BODIES[cls]))
    for field in FIELDS:
        if BODIES[cls] in field.bodies:
            info = cls.model_fields[field.name]
            assert NoneType in get_args(info.annotation)
            assert info.default is None
            assert field.kind is None or field.kind in get_args(info.annotation)


@pytest.mark.parametrize("name", ["stop", "stop_token_ids", "allowed_token_ids", "bad_words"])
def test_a_list_is_checked_up_to_its_first_error(name):
    with pytest.raises(ValidationError) as caught:
        CompletionBody.model_validate({"prompt": "x", name: [None] * 1000})
    assert len([error for error in caught.value.errors() if len(error["loc"]) > 1]) <= 2


def test_only_given_values_are_read():
    values = {"min_p": 0.5, "stop": ["a"], "ignore_eos": False}
    body = GenerationBody.model_validate({**values, "top_k": None, "max_tokens": 5, "other": 1})
    assert given_sampling(body, HttpBodies.OPENAI) == values
