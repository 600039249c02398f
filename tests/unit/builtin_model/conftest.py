"""Paths of the recipe and of the exported folder; one torch thread, the machine is shared."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[3]
RECIPE = ROOT / "models" / "builtin"
# The recipe is a set of scripts beside the installed packages, so nothing installs it.
sys.path.insert(0, str(RECIPE))


@pytest.fixture(scope="session")
def recipe_folder() -> Path:
    return RECIPE


@pytest.fixture(scope="session")
def model_folder() -> Path:
    return ROOT / "pagewire" / "builtin_model"


@pytest.fixture(scope="session")
def vocabulary() -> set[str]:
    return set((RECIPE / "vocabulary.txt").read_text(encoding="utf-8").split())


@pytest.fixture(autouse=True, scope="package")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
