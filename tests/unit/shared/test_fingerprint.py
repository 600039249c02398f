"""The fingerprint of a tokenizer follows content."""

from pathlib import Path

from pagewire_shared.identity.ids import tokenizer_fingerprint


def test_tokenizer_fingerprint_is_zero_only_without_a_file(tmp_path: Path) -> None:
    assert tokenizer_fingerprint(tmp_path) == bytes(32)
    (tmp_path / "tokenizer.json").write_text("{}")
    assert len(tokenizer_fingerprint(tmp_path)) == 32
    assert tokenizer_fingerprint(tmp_path) != bytes(32)
