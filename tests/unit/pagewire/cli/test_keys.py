"""`pagewire keys`: the line that it prints recognises the key that it prints."""

import io

import pytest

from pagewire.cli.keys import command
from pagewire_shared.errors import StartupError
from pagewire_shared.identity.api_key import parse_api_key
from pagewire_shared.identity.key_rights import KeyScope


def test_a_new_key_and_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run("keys", ["new", "--name", "team", "scope=embed", "streams=3"]) == 0
    key, _, line = capsys.readouterr().out.splitlines()
    parsed = parse_api_key(line, may_be_named=True)
    assert (parsed.name, parsed.rights.scopes) == ("team", {KeyScope.EMBED})
    assert parsed.salted is not None
    assert parsed.salted.is_of(key)
    assert key not in line


def test_the_line_of_a_key_that_is_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-" + "k" * 30
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{key}\n"))
    assert command.run("keys", ["hash"]) == 0
    parsed = parse_api_key(capsys.readouterr().out.strip(), may_be_named=False)
    assert parsed.salted is not None
    assert parsed.salted.is_of(key)


@pytest.mark.parametrize("text", ["", "short\n"])
def test_what_is_too_short_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    with pytest.raises(StartupError, match="at least 24 characters"):
        command.run("keys", ["hash"])


def test_words_that_are_not_known_are_refused() -> None:
    with pytest.raises(StartupError, match="behind a key"):
        command.run("keys", ["new", "scope=all"])
