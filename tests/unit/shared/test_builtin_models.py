"""The models of the distribution by name, and that every role knows them by it."""

import pytest

from pagewire.models import BUILTIN_FOLDERS
from pagewire_frontend.model_files import find_folder
from pagewire_shared.builtin_models import BUILTIN_NAMES, builtin_folder
from pagewire_shared.errors import StartupError
from pagewire_worker.hub import resolve_model


@pytest.mark.parametrize("name", BUILTIN_NAMES)
def test_all_roles_find_the_same_folder(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = builtin_folder(name)
    assert (folder / "model.safetensors").is_file()
    assert folder == BUILTIN_FOLDERS[name] == find_folder(name) == resolve_model(name)


def test_a_folder_of_that_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "pagewire-builtin"
    mine.mkdir()
    assert find_folder("pagewire-builtin") == mine
    assert resolve_model("pagewire-builtin").resolve() == mine


def test_other_names_are_none():
    assert builtin_folder("pagewire-builtin-none") is None
    with pytest.raises(StartupError, match="no such folder"):
        find_folder("pagewire-builtin-none")
