"""The pages name every parameter: docs/decoding/sampling.md with its default and bounds,
docs/responses.md those of its body."""

import re
from pathlib import Path

import pytest

from pagewire_shared.sampling import checks
from pagewire_shared.sampling.beam import MAX_BEAM_WIDTH
from pagewire_shared.sampling.fields import FIELDS, HttpBodies, copied_names
from pagewire_shared.sampling.params import SamplingParams, field_names

PAGE = Path(__file__).parents[4] / "docs" / "decoding" / "sampling.md"


def rows() -> dict[str, str]:
    """Return the rows of the table by the parameters they name."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    named = {line: re.findall(r"`(\w+)`", line.split("|")[1]) for line in lines}
    return {name: line for line, names in named.items() for name in names}


def test_every_parameter_is_in_the_table() -> None:
    assert set(rows()) == set(field_names())


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("n", f"1 to {checks.MAX_CHOICES}"),
        ("n", f"at most {MAX_BEAM_WIDTH}"),
        ("best_of", f"to {checks.MAX_CHOICES}"),
        ("stop", f"{checks.MAX_STOP_STRINGS} strings of {checks.MAX_STOP_CHARS} characters"),
        ("stop_token_ids", f"{checks.MAX_STOP_TOKEN_IDS} ids"),
        (
            "logit_bias",
            f"{checks.MAX_LOGIT_BIAS} ids, -{checks.MAX_BIAS:g} to {checks.MAX_BIAS:g}",
        ),
        ("allowed_token_ids", f"{checks.MAX_ALLOWED_TOKEN_IDS} ids"),
        ("bad_words", f"{checks.MAX_BAD_WORDS} strings of {checks.MAX_BAD_WORD_CHARS} characters"),
        (
            "bad_token_sequences",
            f"{checks.MAX_BAD_SEQUENCES} sequences of {checks.MAX_BAD_SEQUENCE_TOKENS} ids",
        ),
        ("logprobs", f"0 to {checks.MAX_LOGPROBS}"),
        ("prompt_logprobs", f"0 to {checks.MAX_LOGPROBS}"),
    ],
)
def test_bounds_are_those_that_are_checked(name: str, bound: str) -> None:
    assert bound in rows()[name]


def test_bounds_of_numbers_are_those_of_the_table() -> None:
    for field in FIELDS:
        if field.kind is float and field.bounds is not None:
            low, high = field.bounds
            bound = f"above {low:g}, to {high:g}" if field.is_open else f"{low:g} to {high:g}"
            assert f"| {bound} |" in rows()[field.name]


def test_defaults_are_those_of_the_parameters() -> None:
    for line in set(rows().values()):
        names, defaults = line.split("|")[1:3]
        for name, shown in zip(re.findall(r"`(\w+)`", names), defaults.split(","), strict=True):
            value = getattr(SamplingParams(), name)
            if isinstance(value, int | float):
                text = str(value).lower() if isinstance(value, bool) else f"{value:g}"
                assert shown.strip() == text, name


def test_the_page_of_responses_names_the_parameters_of_its_body() -> None:
    text = (PAGE.parents[1] / "responses.md").read_text()
    table = text.partition("## What a body may say")[2].partition("\n\nUnknown fields")[0]
    named = set(re.findall(r"`(\w+)`", table)) & set(field_names())
    assert named == set(copied_names(HttpBodies.RESPONSES))
