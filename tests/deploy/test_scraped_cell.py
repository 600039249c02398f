"""A deployment under load, scraped by a real Prometheus: every expression of the dashboard and of
the rules finds what it asks for."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from deploy.measured_requests import Measured, ask_all
from deploy.monitoring_files import RULES, panels, rules, selectors, without
from deploy.prometheus_server import PrometheusServer

from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint
from support.processes.processes import free_ports, wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

NUM_TOKENS = 24
LOAD_SECONDS = 15.0
MORE_SECONDS = 30
# Statuses and endpoints appear when there was one.
APPEARING = frozenset({"status", "endpoint"})
# This cell has no certificates; tests/unit/shared/security/test_metrics_access.py shows the metric.
WITH_TLS = frozenset({"pagewire_certificate_end_timestamp_seconds"})


@dataclass(frozen=True, slots=True)
class Scraped:
    """A cluster that was under load, and who scraped it meanwhile."""

    cluster: Cluster
    prometheus: PrometheusServer
    measured: list[Measured]


@pytest.fixture(scope="module")
def scraped(
    tmp_path_factory: pytest.TempPathFactory, require_tool: Callable[[str, str], str]
) -> Iterator[Scraped]:
    """Two frontends, a worker for prompts, one for tokens, and a KV store."""
    program = require_tool("prometheus", "apt-get install prometheus")
    checkpoint = make_checkpoint(tmp_path_factory.mktemp("scraped") / "model")
    cluster = start_cluster(
        checkpoint,
        frontends=2,
        prefill_workers=1,
        decode_workers=1,
        handoff="always",
        metrics_port=free_ports(8),
        max_model_len=512,
    )
    folder = tmp_path_factory.mktemp("prometheus")
    try:
        with PrometheusServer(program, folder, targets(cluster), RULES) as prometheus:
            prometheus.wait_ready()
            # What counters say before the load is what rates start from.
            wait_until(lambda: prometheus.ask("pagewire_worker_attached == 1"), 20, "scraped")
            yield Scraped(cluster, prometheus, under_load(cluster))
    finally:
        cluster.local.stop()


def targets(cluster: Cluster) -> list[str]:
    """Return where the processes show their metrics."""
    found = []
    for spec in cluster.local._specs.values():
        port = spec.arguments[spec.arguments.index("--metrics-port") + 1]
        found.append(f"127.0.0.1:{port}")
    return found


def under_load(cluster: Cluster) -> list[Measured]:
    """Ask for so long that rates are seen; return what the client measured."""
    measured: list[Measured] = []
    end = time.monotonic() + LOAD_SECONDS
    while time.monotonic() < end:
        prompts = [f"request {len(measured) // 2 + one} " + "word " * 12 for one in range(4)]
        measured += ask_all(cluster.http_url, cluster.model, prompts, NUM_TOKENS)
    return measured


def filled_in(expression: str) -> str:
    """Return an expression of the dashboard as Grafana asks it."""
    for name, value in {"namespace": ".*", "model": ".*", "__rate_interval": "30s"}.items():
        expression = expression.replace(f"${name}", value)
    assert "$" not in expression
    return expression


def test_all_processes_are_scraped(scraped: Scraped) -> None:
    roles = scraped.prometheus.ask("count by (role) (pagewire_build_info)")
    counts = {series["metric"]["role"]: int(series["value"][1]) for series in roles}
    assert counts == {"frontend": 2, "scheduler": 1, "worker": 2, "kvstore": 1}


def test_what_is_not_there_is_not_found(scraped: Scraped) -> None:
    assert scraped.prometheus.ask("pagewire_no_such_metric") == []


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: str(panel["title"]))
def test_every_panel_shows_something(scraped: Scraped, panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        series = scraped.prometheus.ask(filled_in(target["expr"]))
        assert series, target["expr"]


def test_panels_about_the_load_show_numbers(scraped: Scraped) -> None:
    titles = {
        *("Requests by status", "Answers by their end", "Time to first token", "Whole requests"),
        *("Time between tokens", "Queue", "Prefill", "Tokens", "Step time", "CPU of frontends"),
        *("Tokens and sequences per step", "Hand-offs by outcome", "Bytes moved"),
    }
    shown = [panel for panel in panels() if panel["title"] in titles]
    assert len(shown) == len(titles)
    for panel in shown:
        wait_until(partial(shows_numbers, scraped, panel), MORE_SECONDS, str(panel["title"]))


def shows_numbers(scraped: Scraped, panel: dict[str, Any]) -> bool:
    """Return whether a panel shows a number above 0; if not, add to the load.

    A rate needs a rise between two scrapes: a counter that appears with its last value has none.
    """
    series = scraped.prometheus.ask(filled_in(panel["targets"][0]["expr"]))
    numbers = [float(one["value"][1]) for one in series]
    if any(number > 0 and math.isfinite(number) for number in numbers):
        return True
    prompts = [f"more {len(scraped.measured) + one} " + "word " * 12 for one in range(4)]
    scraped.measured.extend(
        ask_all(scraped.cluster.http_url, scraped.cluster.model, prompts, NUM_TOKENS)
    )
    return False


def test_prometheus_could_evaluate_every_rule(scraped: Scraped) -> None:
    evaluated = scraped.prometheus.rules()
    assert len(evaluated) == len(rules("alert")) + len(rules("record"))
    assert {
        rule["name"]: rule.get("lastError", "") for rule in evaluated if rule["health"] != "ok"
    } == {}


@pytest.mark.parametrize("rule", rules("record"), ids=lambda rule: str(rule["record"]))
def test_every_recording_rule_records(scraped: Scraped, rule: dict[str, Any]) -> None:
    name = rule["record"]
    series = wait_until(lambda: scraped.prometheus.ask(name), 10, f"{name} is recorded")
    assert all(math.isfinite(float(one["value"][1])) for one in series)


@pytest.mark.parametrize("rule", rules("alert"), ids=lambda rule: str(rule["alert"]))
def test_every_series_of_an_alert_is_there(scraped: Scraped, rule: dict[str, Any]) -> None:
    asked = selectors(rule["expr"])
    assert asked
    for name, matchers in asked:
        selector = name + without(matchers, APPEARING)
        is_shown = bool(scraped.prometheus.ask(f"count({selector})"))
        assert is_shown == (name not in WITH_TLS), selector


def test_a_cell_that_works_alarms_nobody(scraped: Scraped) -> None:
    firing = [
        rule["name"]
        for rule in scraped.prometheus.rules()
        if rule.get("state") in ("pending", "firing")
    ]
    # Of a burst that begins with the scrape, the CPU of a small machine may be all used.
    assert set(firing) <= {"PagewireFrontendBusy"}


def test_frontends_add_up_to_what_their_clients_measured(scraped: Scraped) -> None:
    wanted = sum(one.usage["completion_tokens"] for one in scraped.measured)
    expression = "sum(vllm:generation_tokens_total)"
    wait_until(lambda: scraped.prometheus.value(expression) == wanted, 10, "all is scraped")
    assert scraped.prometheus.value("sum(vllm:request_success_total)") == len(scraped.measured)
    prompts = sum(one.usage["prompt_tokens"] for one in scraped.measured)
    assert scraped.prometheus.value("sum(vllm:prompt_tokens_total)") == prompts
    queried = "sum(pagewire_scheduler_prefix_queried_tokens_total)"
    wait_until(lambda: scraped.prometheus.value(queried) == prompts, 10, "the scheduler, too")
