"""What fits a model: truncation, the context, and ids of the vocabulary."""

from types import SimpleNamespace

import pytest

from pagewire_frontend.engine.request_fit import check_vocabulary, fit
from pagewire_frontend.prompts.generation_request import ChatPrompt, GenerationRequest, TokenPrompt
from pagewire_shared.errors import ContextLengthError, InvalidRequestError
from pagewire_shared.sampling.params import SamplingParams

LIMIT = 10


def request(**params) -> GenerationRequest:
    model = SimpleNamespace(name="m", vocab_size=50)
    return GenerationRequest(
        model=model,
        prompt=TokenPrompt([1]),
        params=SamplingParams(**{"max_tokens": None, **params}),
    )


@pytest.mark.parametrize(
    ("num_prompt", "kept", "max_tokens", "expected", "room"),
    [
        (6, None, None, list(range(6)), 4),
        (6, 3, None, [3, 4, 5], 7),
        (6, 6, None, list(range(6)), 4),
        (6, 9, None, list(range(6)), 4),
        (30, 3, 2, [27, 28, 29], 2),
        (30, -1, 4, list(range(24, 30)), 4),
        (30, -1, None, list(range(21, 30)), 1),
        (2, -1, 4, [0, 1], 4),
        (30, 9, None, list(range(21, 30)), 1),
    ],
)
def test_the_last_tokens_are_kept(num_prompt, kept, max_tokens, expected, room):
    asked = request(truncate_prompt_tokens=kept, max_tokens=max_tokens)
    token_ids, params = fit(asked, list(range(num_prompt)), LIMIT)
    assert (token_ids, params.max_tokens) == (expected, room)


@pytest.mark.parametrize(
    ("num_prompt", "kept", "max_tokens", "field"),
    [
        (10, None, None, "prompt"),
        (6, None, 5, "max_tokens"),
        (6, 10, None, None),
        (30, 10, None, "prompt"),
        (30, 8, 3, "max_tokens"),
        (3, 11, None, "truncate_prompt_tokens"),
        (3, -1, 10, "max_tokens"),
    ],
)
def test_what_does_not_fit_names_its_field(num_prompt, kept, max_tokens, field):
    asked = request(truncate_prompt_tokens=kept, max_tokens=max_tokens)
    if field is None:
        fit(asked, list(range(num_prompt)), LIMIT)
        return
    with pytest.raises(InvalidRequestError) as caught:
        fit(asked, list(range(num_prompt)), LIMIT)
    assert caught.value.field == field
    is_context = field != "truncate_prompt_tokens"
    assert isinstance(caught.value, ContextLengthError) is is_context


def test_a_conversation_is_called_messages():
    asked = GenerationRequest(
        model=SimpleNamespace(name="m"), prompt=ChatPrompt([]), params=SamplingParams()
    )
    with pytest.raises(ContextLengthError) as caught:
        fit(asked, list(range(10)), LIMIT)
    assert caught.value.field == "messages"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("logit_bias", {3: 1.0, 50: 1.0}),
        ("allowed_token_ids", (3, 50)),
        ("stop_token_ids", (50,)),
        ("bad_token_sequences", ((3,), (4, 50))),
    ],
)
def test_ids_outside_the_vocabulary_name_their_field(field, value):
    with pytest.raises(InvalidRequestError, match=r"\[0, 50\), got 50") as caught:
        check_vocabulary(SamplingParams(**{field: value}), 50)
    assert caught.value.field == field
    check_vocabulary(SamplingParams(**{field: value}), 51)
