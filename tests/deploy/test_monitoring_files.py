"""Alert rules and dashboard by themselves: what promtool says, and that they name what there is."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.monitoring_files import (
    ROOT,
    RULES,
    RULES_TEST,
    dashboard,
    metric_of,
    panels,
    rules,
    selectors,
    without,
)

INSTALL = "apt-get install prometheus"
# Not ours: prometheus-client's and Prometheus' own.
OTHERS = {"up", "process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"}


@pytest.fixture(scope="module")
def promtool(require_tool: Callable[[str, str], str]) -> Callable[..., str]:
    path = require_tool("promtool", INSTALL)

    def run(*arguments: str | Path, status: int = 0) -> str:
        done = subprocess.run([path, *map(str, arguments)], capture_output=True, text=True)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def on_the_page() -> set[str]:
    page = (ROOT / "docs" / "metrics.md").read_text()
    return set(re.findall(r"`((?:pagewire|vllm)[_:][a-z0-9_]+)[`{]", page))


def test_rules_are_valid(promtool: Callable[..., str]) -> None:
    assert "SUCCESS" in promtool("check", "rules", RULES)


def test_every_alert_fires_when_it_should_and_only_then(promtool: Callable[..., str]) -> None:
    assert "SUCCESS" in promtool("test", "rules", RULES_TEST)


def test_a_wrong_threshold_is_found(promtool: Callable[..., str], tmp_path: Path) -> None:
    changed = RULES.read_text().replace("kv_usage_ratio) > 0.9", "kv_usage_ratio) > 0.99")
    assert changed != RULES.read_text()
    (tmp_path / "rules.yaml").write_text(changed)
    test = yaml.safe_load(RULES_TEST.read_text()) | {"rule_files": ["rules.yaml"]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(test))
    assert "PagewireKvFull" in promtool("test", "rules", tmp_path / "test.yaml", status=1)


def test_every_alert_is_tested_both_ways() -> None:
    tests = yaml.safe_load(RULES_TEST.read_text())["tests"]
    cases: dict[str, list[bool]] = {}
    for case in (case for test in tests for case in test["alert_rule_test"]):
        cases.setdefault(case["alertname"], []).append(bool(case["exp_alerts"]))
    assert {rule["alert"]: [False, True] for rule in rules("alert")} == cases


@pytest.mark.parametrize("rule", rules("alert"), ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_what_and_where_to_read_on(rule: dict[str, Any]) -> None:
    assert rule["for"]
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    notes = rule["annotations"]
    assert notes["summary"]
    assert len(notes["description"].split()) > 4
    assert re.fullmatch(r"docs/operations\.md#[a-z-]+", notes["runbook"])


def test_rules_and_dashboard_ask_for_metrics_that_there_are() -> None:
    records = {rule["record"] for rule in rules("record")}
    asked = [rule["expr"] for kind in ("alert", "record") for rule in rules(kind)]
    asked += [target["expr"] for panel in panels() for target in panel["targets"]]
    names = {name for expression in asked for name, _ in selectors(expression)}
    known = on_the_page() | records | OTHERS
    assert {name for name in names if not {name, metric_of(name)} & known} == set()


def test_the_dashboard_is_one_board_with_its_variables() -> None:
    board = dashboard()
    assert [item["name"] for item in board["templating"]["list"]] == [
        "datasource",
        "namespace",
        "model",
    ]
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    places = [tuple(panel["gridPos"][side] for side in "xy") for panel in board["panels"]]
    assert len(places) == len(set(places))
    for panel in panels():
        assert panel["datasource"]["uid"] == "${datasource}", panel["title"]
        assert panel["targets"], panel["title"]


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: str(panel["title"]))
def test_a_panel_shows_the_chosen_namespaces_and_models(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        found = selectors(target["expr"])
        assert found
        for name, matchers in found:
            is_joined = name == "pagewire_build_info" and "group_left" in target["expr"]
            assert is_joined or 'namespace=~"$namespace"' in matchers, target["expr"]


def test_selectors_are_found() -> None:
    found = selectors('sum(rate(pagewire_a_total{x="y"}[5m])) / pagewire:b:sum and up == 0')
    assert found == {("pagewire_a_total", '{x="y"}'), ("pagewire:b:sum", ""), ("up", "")}
    assert without('{a="1", b=~"2|3", c!="4"}', frozenset({"b"})) == '{a="1", c!="4"}'
