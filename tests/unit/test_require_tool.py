"""The rule about outside tools: skip with the install command, or fail where they are required."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

RequireTool = Callable[[str, str], str]


def test_present_tool_is_found(require_tool: RequireTool, monkeypatch: pytest.MonkeyPatch) -> None:
    python = Path(sys.executable)
    monkeypatch.setenv("PATH", str(python.parent))
    assert require_tool(python.name, "") == str(python)


def test_missing_tool_skips(require_tool: RequireTool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAGEWIRE_REQUIRE_TOOLS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install no-such-tool"):
        require_tool("no-such-tool", "apt-get install no-such-tool")


def test_missing_tool_fails_where_required(
    require_tool: RequireTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEWIRE_REQUIRE_TOOLS", "1")
    with pytest.raises(pytest.fail.Exception, match="apt-get install no-such-tool"):
        require_tool("no-such-tool", "apt-get install no-such-tool")
