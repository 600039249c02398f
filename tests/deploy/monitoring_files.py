"""The dashboard and the rules of the chart, and what their expressions ask for."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FILES = ROOT / "helm" / "pagewire" / "files"
RULES = FILES / "rules.yaml"
RULES_TEST = Path(__file__).with_name("rules_test.yaml")

_SELECTOR = re.compile(
    r"(?<![\w:])((?:pagewire|process|vllm)[_:][a-z0-9_:]+|up(?= ==))(\{[^}]*\})?"
)
_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)("[^"]*")')


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana reads it."""
    board: dict[str, Any] = json.loads((FILES / "dashboard.json").read_text())
    return board


def panels() -> list[dict[str, Any]]:
    """Return its panels that show something."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def rules(kind: str) -> list[dict[str, Any]]:
    """Return the rules that have a `kind`: alert or record."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if kind in rule]


def selectors(expression: str) -> set[tuple[str, str]]:
    """Return (metric, matchers) of all series that an expression selects."""
    return {(name, matchers) for name, matchers in _SELECTOR.findall(expression)}


def without(matchers: str, labels: frozenset[str]) -> str:
    """Return matchers such as {a="b"} without those of some labels."""
    kept = ["".join(found) for found in _MATCHER.findall(matchers) if found[0] not in labels]
    return "{" + ", ".join(kept) + "}"


def metric_of(series: str) -> str:
    """Return the metric that a series belongs to, as docs/metrics.md names it."""
    return re.sub(r"_(bucket|sum|count)$", "", series)
