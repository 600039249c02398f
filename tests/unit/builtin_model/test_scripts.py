"""The scripts around the recipe: the one command for all, and the server an evaluation starts."""

import re
import subprocess
import sys
import urllib.request

import pytest
from builtin_recipe.evaluation.local_server import ServerError, served
from make_model import steps

OPTION = re.compile(r"^--[a-z-]+$")


def test_the_one_command_runs_scripts_that_take_its_options(recipe_folder, tmp_path):
    for script, *words in steps(tmp_path, 10, 5):
        source = (recipe_folder / script).read_text(encoding="utf-8")
        for word in filter(OPTION.match, words):
            assert f'"{word}"' in source, (script, word)


def test_an_evaluation_serves_a_folder_for_its_time(model_folder):
    with (
        served(model_folder) as url,
        urllib.request.urlopen(f"{url}/models", timeout=30) as answer,
    ):
        assert b"builtin_model" in answer.read()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"{url}/models", timeout=5)


def test_a_folder_that_cannot_be_served_is_named(tmp_path):
    with pytest.raises(ServerError, match=str(tmp_path)), served(tmp_path):
        raise AssertionError("it is served")


@pytest.mark.parametrize("script", ["make_model.py", "export.py", "adapter.py"])
def test_help_says_what_a_script_is_for(script, recipe_folder):
    command = [sys.executable, str(recipe_folder / script), "--help"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(run.stdout.splitlines()) > 5
