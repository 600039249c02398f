"""What the log says of a request."""

import json
import logging

import pytest

from pagewire_frontend.request_label import parse_label
from pagewire_frontend.session.journal import Journal, JournalEntry
from pagewire_frontend.session.session_summary import summary
from pagewire_shared.errors import OverloadedError
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.process.logs import FIELDS, configure_logging
from pagewire_shared.sampling.params import SamplingParams

ID = bytes(range(16))


@pytest.fixture
def entry() -> JournalEntry:
    params = SamplingParams(seed=1, max_tokens=8)
    made = JournalEntry(
        request_id=RequestId(ID), model="tiny", prompt_token_ids=[1, 2, 3], params=params
    )
    Journal().open(made)
    return made


def test_line_and_fields_say_the_same(entry: JournalEntry) -> None:
    said = summary(
        entry,
        OverloadedError("full"),
        label="mine-7",
        num_cached_tokens=2,
        num_recoveries=3,
        first_token_seconds=None,
        total_seconds=1.25,
    )
    assert said.line.startswith("request 00010203 (mine-7) of tiny broken off (full): 3 + 0 tokens")
    assert said.line.endswith("3 recoveries")
    assert said.fields["recoveries"] == 3
    assert said.fields["request_id"] == ID.hex()
    assert (said.fields["x_request_id"], said.fields["outcome"]) == ("mine-7", "failed")
    assert (said.fields["prompt_tokens"], said.fields["cached_tokens"]) == (3, 2)
    assert (said.fields["time_to_first_token"], said.fields["seconds"]) == (None, 1.25)


def test_json_lines_have_the_fields(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        configure_logging("frontend", "info", "json")
        logging.getLogger("x").info("said", extra={FIELDS: {"request_id": "ab", "resumes": 1}})
    finally:
        root.handlers[:], level = before
        root.setLevel(level)
    line = json.loads(capsys.readouterr().err)
    assert (line["message"], line["request_id"], line["resumes"]) == ("said", "ab", 1)


@pytest.mark.parametrize("value", [b"", b"a b", b"a\nb", "é".encode(), b"x" * 129])
def test_what_could_forge_a_line_is_no_label(value: bytes) -> None:
    assert parse_label(value) is None


def test_labels() -> None:
    assert parse_label(b"req-7/{x}") == "req-7/{x}"
