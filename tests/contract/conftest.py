"""What the tests of the frontend share."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contract.response_gateway import MarkedReader

from pagewire_frontend.chat.plan import plan_message
from pagewire_frontend.http.responses import asked as responses
from support.checkpoints.text_models import make_text_model


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the model "tiny", as a frontend reads it."""
    return make_text_model(tmp_path_factory.mktemp("checkpoint") / "tiny")


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Have every model's text read by a MarkedReader; yields the uses of tools that were asked."""
    asked = []

    def plan(model: Any, params: Any, tool_use: Any, **_: Any) -> Any:
        asked.append(tool_use)
        plan = plan_message(model, params)
        return replace(plan, new_reader=MarkedReader)

    monkeypatch.setattr(responses, "plan_message", plan)
    return asked
