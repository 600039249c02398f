"""Where a model lies: folders, built-in ones, and the cache of the hub."""

import logging

import pytest

from pagewire_shared.errors import StartupError
from pagewire_shared.identity.model_folder import (
    BUILTIN_NAMES,
    builtin_folder,
    cache_folder,
    is_hub_id,
    resolve_model,
)

COMMITS = {"main": "a" * 40, "v2": "b" * 40}


@pytest.fixture
def hub_cache(tmp_path):
    repository = tmp_path / "hub" / "models--org--small"
    (repository / "refs").mkdir(parents=True)
    for revision, commit in COMMITS.items():
        (repository / "refs" / revision).write_text(commit + "\n")
        snapshot = repository / "snapshots" / commit
        snapshot.mkdir(parents=True)
        (snapshot / "config.json").write_text("{}")
    (snapshot.parent / COMMITS["main"] / "model.safetensors").touch()
    return tmp_path


def found(model, environ, *, has_weights=False):
    return resolve_model(model, {**environ, "HF_HUB_OFFLINE": "1"}, has_weights=has_weights).name


def test_a_folder_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "pagewire-builtin"
    mine.mkdir()
    assert resolve_model("pagewire-builtin", has_weights=True) == mine.resolve()


@pytest.mark.parametrize("name", BUILTIN_NAMES)
def test_built_in_models_need_no_hub(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    environ = {"HF_HUB_OFFLINE": "1"}
    assert resolve_model(name, environ, has_weights=True) == builtin_folder(name)


@pytest.mark.parametrize("variable", ["HF_HOME", "HF_HUB_CACHE"])
def test_hub_ids_are_found_in_the_cache(hub_cache, variable):
    environ = {variable: str(hub_cache / ("hub" if variable == "HF_HUB_CACHE" else ""))}
    assert found("org/small", environ) == COMMITS["main"]
    assert found("org/small@main", environ, has_weights=True) == COMMITS["main"]
    assert found("org/small@v2", environ) == COMMITS["v2"]
    assert found(f"org/small@{COMMITS['v2']}", environ) == COMMITS["v2"]


def test_a_branch_is_logged_with_its_commit(hub_cache, caplog):
    caplog.set_level(logging.INFO)
    found(f"org/small@{COMMITS['v2']}", {"HF_HOME": str(hub_cache)})
    assert not caplog.records
    found("org/small", {"HF_HOME": str(hub_cache)})
    assert f"pin it with org/small@{COMMITS['main']}" in caplog.text


@pytest.mark.parametrize(
    ("model", "has_weights"),
    [("org/other", False), ("org/small@v3", False), ("org/small@v2", True)],
)
def test_a_model_that_is_not_cached_is_refused_offline(hub_cache, model, has_weights):
    with pytest.raises(StartupError, match="HF_HUB_OFFLINE"):
        found(model, {"HF_HOME": str(hub_cache)}, has_weights=has_weights)


@pytest.mark.parametrize("model", ["/no/such/folder", "./org/name", "~/none", "a/b/c", "org/na me"])
def test_other_texts_are_missing_folders(model):
    assert not is_hub_id(model)
    with pytest.raises(StartupError, match="there is no folder"):
        resolve_model(model, {}, has_weights=False)


def test_default_cache_folder():
    assert str(cache_folder({"XDG_CACHE_HOME": "/c"})) == "/c/huggingface/hub"
