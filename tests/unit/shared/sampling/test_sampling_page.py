"""docs/sampling.md names every parameter, with the bounds that are checked."""

import re
from pathlib import Path

import pytest

from pagewire_shared.sampling import checks
from pagewire_shared.sampling.beam import MAX_BEAM_WIDTH
from pagewire_shared.sampling.params import field_names

PAGE = Path(__file__).parents[4] / "docs" / "sampling.md"


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
        ("repetition_penalty", f"to {checks.MAX_REPETITION_PENALTY:g}"),
        ("frequency_penalty", f"-{checks.MAX_PENALTY:g} to {checks.MAX_PENALTY:g}"),
        ("presence_penalty", f"-{checks.MAX_PENALTY:g} to {checks.MAX_PENALTY:g}"),
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
