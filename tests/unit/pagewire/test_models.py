"""Names and folders of the models that a deployment serves."""

from pathlib import Path

import pytest

from pagewire.models import BUILTIN_FOLDERS, ServedModel, served_models
from pagewire_shared.errors import StartupError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "tiny-llama"
    path.mkdir()
    (path / "config.json").write_text("{}")
    return path


def test_a_folder_gets_its_own_name(folder: Path) -> None:
    assert served_models([str(folder)], None) == (ServedModel("tiny-llama", str(folder)),)


def test_a_given_name_is_used(folder: Path) -> None:
    assert served_models([f"a={folder}"], None)[0].name == "a"
    assert served_models([str(folder)], "b")[0].name == "b"


def test_a_folder_may_contain_an_equals_sign(folder: Path) -> None:
    odd = folder.parent / "a=b"
    folder.rename(odd)
    assert served_models([str(odd)], None) == (ServedModel("a=b", str(odd)),)


def test_a_hub_id_is_kept() -> None:
    (model,) = served_models(["Qwen/Qwen2.5-0.5B"], None)
    assert model == ServedModel("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-0.5B")
    assert not model.is_local


def test_built_in_models_have_their_own_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, folder in BUILTIN_FOLDERS.items():
        assert served_models([name], None) == (ServedModel(name, str(folder)),)
    assert served_models([], None) == served_models(["pagewire-builtin"], None)
    assert served_models(["small=pagewire-builtin-draft"], None)[0].name == "small"
    # A folder of that name comes first.
    mine = tmp_path / "pagewire-builtin"
    mine.mkdir()
    (mine / "config.json").write_text("{}")
    assert served_models(["pagewire-builtin"], None)[0].path == str(mine)


@pytest.mark.parametrize(
    ("entries", "name", "message"),
    [
        (["./nothing"], None, "./nothing does not exist"),
        (["a="], None, "neither name=path nor a path"),
        (["x/y", "z=x/w"], "one", "--served-model-name names one model"),
        (["n=x/y", "n=x/w"], None, "two models are named 'n'"),
    ],
)
def test_invalid_entries_are_refused(entries: list[str], name: str | None, message: str) -> None:
    with pytest.raises(StartupError, match=message):
        served_models(entries, name)


def test_a_folder_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"has no config\.json"):
        served_models([str(tmp_path)], None)
    (tmp_path / "file").write_text("")
    with pytest.raises(StartupError, match="is a file; name the folder"):
        served_models([str(tmp_path / "file")], None)


def test_chat_templates_are_found_in_both_files(folder: Path) -> None:
    (model,) = served_models([str(folder)], None)
    assert not model.has_chat_template
    (folder / "tokenizer_config.json").write_text('{"chat_template": "x"}')
    assert model.has_chat_template
    (folder / "tokenizer_config.json").write_text("{}")
    assert not model.has_chat_template
    (folder / "chat_template.jinja").write_text("x")
    assert model.has_chat_template
