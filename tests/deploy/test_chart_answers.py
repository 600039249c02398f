"""A release of the chart run as processes, and asked by the curl of NOTES.txt and by the program
of `helm test`: what people are given to try works."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pagewire_shared.identity.model_folder import BUILTIN_NAME
from support.charts.chart_processes import ROLES, ChartProcesses
from support.charts.charts import CHART, Release, bytes_of, named, pods_of, references, render, run
from support.processes.processes import children_of, free_port

KEY = "in=the=clear=="
KEYS = f"# Ours.\nsha256:{'0' * 64}\nteam-b=sha256:{'1' * 64}\nteam-a={KEY}\n"


@pytest.fixture(scope="module")
def server(helm, tmp_path_factory):
    release = Release({"apiKeys": {"lines": KEYS.splitlines()}}, files=[CHART / "values-cpu.yaml"])
    with ChartProcesses(render(helm, release), tmp_path_factory.mktemp("release")) as started:
        yield started


def notes(helm, release):
    done = run(helm, release, "install", "--dry-run=client", "--output", "json")
    assert done.returncode == 0, done.stderr
    text = json.loads(done.stdout)["info"]["notes"]
    assert isinstance(text, str)
    return text


def curl_of(text):
    return re.search(r"curl (?:.*\\\n)*.*", text)[0]


def asked(command, server, key):
    command = command.replace("http://127.0.0.1:8000", server.url)
    environ = {**os.environ, "API_KEY": key}
    done = subprocess.run(
        ["bash", "-euc", command], env=environ, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_curl_of_the_notes_is_answered(helm, require_tool, server):
    require_tool("curl", "apt-get install curl")
    command = curl_of(notes(helm, Release({"apiKeys": {"lines": KEYS.splitlines()}})))
    assert asked(command, server, KEY)["usage"]["completion_tokens"] > 0
    assert asked(command, server, "another")["error"]["code"] == "invalid_api_key"
    # Without keys it sends none.
    command = curl_of(notes(helm, Release()))
    assert "authorization" not in command
    assert asked(command, server, KEY)["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize("role", ROLES)
def test_prometheus_finds_metrics_where_it_is_told(server, role):
    assert "# TYPE " in server.metrics(role)


def test_the_notes_name_what_is_there(helm):
    release = Release({"frontend": {"service": {"httpPort": 80}}})
    text = notes(helm, release)
    objects = render(helm, release)
    forwarded, port = re.search(r"port-forward svc/(\S+) 8000:(\d+)", text).groups()
    assert port in [str(p["port"]) for p in named(objects, "Service", forwarded)["spec"]["ports"]]
    for name in re.findall(r"(?://|///)([a-z-]+)\.serving", text):
        assert named(objects, "Service", name)
    assert "Everybody who reaches it may call" in text
    secret = notes(helm, Release({"apiKeys": {"existingSecret": "mine"}}))
    assert "Secret mine" in secret
    assert "Everybody" not in secret


def test_the_program_of_the_test_pod_is_the_file(helm):
    objects = render(helm, Release({"apiKeys": {"existingSecret": "mine"}}))
    (pods,) = pods_of(objects, "test")
    assert pods.container["command"] == ["python", "-c"]
    program, url, model = pods.container["args"]
    assert program.strip() == (CHART / "files" / "ask.py").read_text().strip()
    service, port = re.fullmatch(r"http://(\S+):(\d+)", url).groups()
    ports = named(objects, "Service", service)["spec"]["ports"]
    assert int(port) in [port["port"] for port in ports]
    assert model == "pagewire-builtin"
    assert list(references(pods.spec, "secretKeyRef")) == [{"name": "mine", "key": "api-keys"}]
    assert pods.owner["metadata"]["annotations"]["helm.sh/hook"] == "test"


@pytest.mark.parametrize(
    ("model", "keys", "status", "said"),
    [
        (BUILTIN_NAME, KEYS, 0, f"{BUILTIN_NAME}: "),
        (BUILTIN_NAME, "wrong", 1, "401: "),
        (BUILTIN_NAME, None, 1, "401: "),
        ("unknown", KEYS, 1, "404: "),
        (BUILTIN_NAME, f"sha256:{'0' * 64}", 1, "helmTest.apiKeySecret"),
    ],
)
def test_the_test_pod_asks(server, model, keys, status, said):
    environ = {**os.environ, **({"API_KEYS": keys} if keys else {})}
    command = [sys.executable, str(CHART / "files" / "ask.py"), server.url, model]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stderr
    assert said in done.stdout + done.stderr


def test_nobody_there_is_a_failure():
    url = f"http://127.0.0.1:{free_port()}"
    command = [sys.executable, str(CHART / "files" / "ask.py"), url, "m"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "does not answer" in done.stderr


@pytest.mark.parametrize("role", ROLES)
def test_a_laptops_limits_hold_what_a_role_takes(server, role):
    """After the answers above; as Kubernetes counts, with what lies in /dev/shm or is shared."""
    limit = bytes_of(server.pods[role].container["resources"]["limits"]["memory"])
    pid = server.processes[role].pid
    taken = sum(memory_of(one) for one in [pid, *children_of(pid)])
    assert 0 < taken < limit * 0.75


def memory_of(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024


def test_every_process_ends_in_its_time_when_it_is_told(server):
    """The last test of this file: nobody is there afterwards."""
    for role, process in server.processes.items():
        process.terminate()
        seconds = server.pods[role].spec["terminationGracePeriodSeconds"]
        assert process.wait(timeout=seconds) == 0, role
