"""The chart as helm and the schemas of Kubernetes see it, over its values files and switches."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from support.charts.chart_variants import VARIANTS
from support.charts.charts import CHART, ROOT, VALUES_FILES, Release, named, of_kind, render

# The oldest that Chart.yaml admits, and the newest of the schemas.
VERSIONS = ("1.27", "1.37")
# What no Kubernetes has by itself; checked below.
CUSTOM = {
    "Certificate": "cert-manager.io/v1",
    "HTTPRoute": "gateway.networking.k8s.io/v1",
    "InferencePool": "inference.networking.k8s.io/v1",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    "PodMonitor": "monitoring.coreos.com/v1",
    "PrometheusRule": "monitoring.coreos.com/v1",
    "ScaledObject": "keda.sh/v1alpha1",
}


@pytest.mark.parametrize("path", [None, *VALUES_FILES], ids=lambda path: path and path.stem)
def test_lint_finds_nothing(helm, path):
    values = ["-f", str(path)] if path else []
    command = [helm, "lint", "--strict", "--quiet", str(CHART), *values]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_object_is_one_of_kubernetes(helm, tmp_path):
    """--strict: an unknown field is a mistake, too."""
    files = []
    for name, release in VARIANTS.items():
        objects = [item for item in render(helm, release) if item["kind"] not in CUSTOM]
        assert {"Deployment", "Service", "Pod"} <= {item["kind"] for item in objects}
        files.append(tmp_path / f"{name}.yaml")
        files[-1].write_text(yaml.safe_dump_all(objects))
    for version in VERSIONS:
        done = validated(helm, version, files)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Couldn't find" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda spec: spec.update(terminationGracePeriodSecond=1), "terminationGracePeriodSecond"),
        (lambda spec: spec["containers"][0].update(args="x"), "args"),
    ],
)
def test_the_schemas_find_what_is_wrong(helm, tmp_path, change, message):
    deployment = named(render(helm, Release()), "Deployment", "pw-pagewire-frontend")
    change(deployment["spec"]["template"]["spec"])
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump(deployment))
    done = validated(helm, VERSIONS[1], [path])
    assert done.returncode != 0
    assert message in done.stdout + done.stderr


def validated(helm, version, files):
    environ = {**os.environ, "PYTHONPATH": str(Path(helm).parent / "packages")}
    command = [sys.executable, "-W", "ignore", "-m", "kubernetes_validate", "-k", version]
    command += ["--strict", *map(str, files)]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=100)


def test_custom_objects_are_all_rendered_somewhere(helm):
    objects = [item for release in VARIANTS.values() for item in render(helm, release)]
    found = {item["kind"]: item["apiVersion"] for item in objects if item["kind"] in CUSTOM}
    assert found == CUSTOM


def test_a_pod_monitor_asks_the_metrics_port_of_all_pods(helm):
    monitor = named(render(helm, VARIANTS["everything"]), "PodMonitor", "pw-pagewire")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint == {"port": "metrics", "path": "/metrics", "interval": "15s"}


def test_rules_and_dashboard_are_the_files(helm):
    objects = render(helm, VARIANTS["everything"])
    rules = yaml.safe_load((CHART / "files" / "rules.yaml").read_text())
    # Expressions of Prometheus' own templates must arrive as they are.
    assert named(objects, "PrometheusRule", "pw-pagewire")["spec"] == rules
    dashboard = named(objects, "ConfigMap", "pw-pagewire-dashboard")
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    board = json.loads((CHART / "files" / "dashboard.json").read_text())
    assert json.loads(dashboard["data"]["pagewire.json"]) == board


def test_scaled_objects_ask_for_the_requests_of_their_model(helm):
    objects = render(helm, VARIANTS["keda"])
    queries = {}
    for item in of_kind(objects, "ScaledObject"):
        (trigger,) = item["spec"]["triggers"]
        assert trigger["type"] == "prometheus"
        assert set(trigger["metadata"]) == {"serverAddress", "query", "threshold"}
        assert all(isinstance(value, str) for value in trigger["metadata"].values())
        queries[item["spec"]["scaleTargetRef"]["name"]] = trigger["metadata"]["query"]
    where = 'namespace="serving",model_name='
    assert queries == {
        "pw-pagewire-worker-prefill": f'sum(vllm:num_requests_waiting{{{where}"qwen2.5-7b"}})',
        "pw-pagewire-worker-decode": 'sum(vllm:num_requests_running{model_name="qwen2.5-7b"})',
        "pw-pagewire-worker-rare": f'sum(vllm:num_requests_waiting{{{where}"mistral-7b"}})',
    }


def test_extra_objects_may_hold_expressions(helm):
    objects = render(helm, VARIANTS["everything"])
    assert named(objects, "ConfigMap", "pw-more")["data"] == {"a": "b"}
    assert named(objects, "ConfigMap", "text")["data"] == {"a": "pagewire"}


def test_the_version_is_the_projects():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert chart["version"] == chart["appVersion"] == project["version"]


def test_every_key_of_the_values_is_in_the_schema_and_the_other_way():
    """additionalProperties refuses what the schema misses; a key that only it has is never read."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    text = "".join(path.read_text() for path in (CHART / "templates").rglob("*.*"))
    pool = schema["definitions"]["pool"]["properties"]
    assert [key for key in pool if not re.search(rf"\.{key}\b", text)] == []
    for key, section in schema["properties"].items():
        for inner in section.get("properties", {}):
            assert re.search(rf"\.{inner}\b", text), f"nothing reads {key}.{inner}"
