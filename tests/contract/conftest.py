"""What the tests of the frontend share."""

from pathlib import Path

import pytest

from support.text_models import make_text_model


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the model "tiny", as a frontend reads it."""
    return make_text_model(tmp_path_factory.mktemp("checkpoint") / "tiny")
