"""The folders of a model and its tokenizer, and values in place of those of config.json."""

from pathlib import Path

import pytest

from pagewire_shared.errors import StartupError
from pagewire_shared.identity.model_files import (
    ModelFilesConfig,
    find_files,
    json_object,
    overridden,
    override_bytes,
)
from pagewire_shared.process.sizes import parse_count


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with org/m at main and at v1, and the tokenizer org/t without a config.json."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name, revision, files in (
        ("m", "main", ("config.json", "model.safetensors", "tokenizer.json")),
        ("m", "v1", ("config.json", "model.safetensors", "tokenizer.json")),
        ("t", "main", ("tokenizer.json",)),
    ):
        folder = tmp_path / "hub" / f"models--org--{name}" / "snapshots" / revision
        folder.mkdir(parents=True)
        for file in files:
            (folder / file).write_text("{}")
    return tmp_path / "hub"


def test_revision_tokenizer_and_folder_of_downloads(hub: Path) -> None:
    def found(**settings: str) -> tuple[str, str]:
        config = ModelFilesConfig(download_dir=str(hub), **settings)
        files = find_files(config, "org/m", has_weights=True)
        return (
            str(files.folder.relative_to(hub)),
            str(files.tokenizer_folder.relative_to(hub)),
        )

    main, old = ("models--org--m/snapshots/" + name for name in ("main", "v1"))
    assert found() == (main, main)
    assert found(revision="v1") == (old, old)
    assert found(tokenizer_revision="v1") == (main, old)
    assert found(tokenizer="org/t") == (main, "models--org--t/snapshots/main")
    with pytest.raises(StartupError, match="--tokenizer: org/nope") as caught:
        found(tokenizer="org/nope")
    assert caught.value.field == "tokenizer"


def test_a_folder_has_no_revisions(tmp_path: Path) -> None:
    config = ModelFilesConfig(revision="v1")
    with pytest.raises(StartupError, match=r"--revision: .* is a folder"):
        find_files(config, str(tmp_path), has_weights=False)
    config = ModelFilesConfig(tokenizer_revision="v1", tokenizer=str(tmp_path))
    with pytest.raises(StartupError, match=r"--tokenizer-revision: .* is a folder"):
        find_files(config, str(tmp_path), has_weights=False)


def test_overrides_replace_values_and_join_parts() -> None:
    config = {"a": 1, "rope": {"x": 1}, "text_config": {"b": 1, "c": {"d": 1}}}
    overrides = {"a": 2, "rope": {"y": 2}, "text_config": {"c": 3}, "new": None}
    assert overridden(config, overrides) == {
        "a": 2,
        "rope": {"y": 2},
        "text_config": {"b": 1, "c": 3},
        "new": None,
    }
    assert config["text_config"] == {"b": 1, "c": {"d": 1}}
    assert override_bytes({}) == b""
    assert override_bytes({"b": 1, "a": 2}) == override_bytes({"a": 2, "b": 1}) != b""


def test_objects_are_written_in_one_way() -> None:
    assert json_object(' {"b": 1,"a": 2} ') == '{"a": 2, "b": 1}'
    assert json_object("{}") == json_object("") == ""
    for text in ("[", "[1]", "1", "null", "[" * 100_000):
        with pytest.raises(StartupError, match="JSON"):
            json_object(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [("8192", 8192), ("1k", 1000), ("1K", 1024), ("25.6k", 25_600), ("2m", 2_000_000), (7, 7)],
)
def test_counts_have_units(text: str | int, number: int) -> None:
    assert parse_count(text) == number


@pytest.mark.parametrize("text", ["", "k", "1.5K", "1.5", "1x", "k1", "1e3"])
def test_bad_counts(text: str) -> None:
    with pytest.raises(StartupError, match="whole number"):
        parse_count(text)
