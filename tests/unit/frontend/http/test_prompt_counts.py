"""Too many prompts are refused before any is made of them."""

import pytest

from pagewire_frontend.http.openai import options
from pagewire_frontend.http.openai.schemas import MAX_PROMPTS
from pagewire_shared.errors import InvalidRequestError


@pytest.mark.parametrize("form", ["text", [1, 2]])
@pytest.mark.parametrize("field", ["prompt", "input"])
def test_too_many_prompts_are_counted_and_not_made(monkeypatch, form, field):
    made = []
    for name in ("TextPrompt", "TokenPrompt"):
        monkeypatch.setattr(options, name, lambda *given: made.append(given))
    options.prompts_of([form] * MAX_PROMPTS, True, field=field)
    assert len(made) == MAX_PROMPTS
    made.clear()
    with pytest.raises(InvalidRequestError, match=f"at most {MAX_PROMPTS} {field}s") as caught:
        options.prompts_of([form] * (MAX_PROMPTS + 1), True, field=field)
    assert caught.value.field == field
    assert made == []
