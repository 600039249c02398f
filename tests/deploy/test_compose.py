"""The compose files: they load, and what they say fits the roles, the images and one another."""

import contextlib
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from deploy.dockerfile import read_dockerfile

from pagewire.cli.certs import command
from pagewire_frontend.config import FrontendConfig
from pagewire_kvstore.config import KvStoreConfig
from pagewire_scheduler.config import SchedulerConfig
from pagewire_shared.process.settings import load_config
from pagewire_shared.security.tls_files import TlsPaths, read_files
from pagewire_worker.config import WorkerConfig
from support.processes.processes import free_port, wait_until
from support.source_tree import ROOT

DOCKER = ROOT / "docker"
CONFIGS: dict[str, type[Any]] = {
    "frontend": FrontendConfig,
    "kvstore": KvStoreConfig,
    "scheduler": SchedulerConfig,
    "worker": WorkerConfig,
}
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def interpolated(text: str, environ: Mapping[str, str]) -> str:
    """Replace ${NAME:-default} as compose does; no other form is used."""

    def value(match: "re.Match[str]") -> str:
        return environ.get(match["name"]) or match["default"]

    result = re.sub(r"\$\{(?P<name>\w+):-(?P<default>[^}]*)\}", value, text)
    assert "$" not in result, "a variable without a default"
    return result


def load(name: str, **environ: str) -> dict[str, dict[str, Any]]:
    """Return the services of a file."""
    services: dict[str, dict[str, Any]] = yaml.safe_load(
        interpolated((DOCKER / name).read_text(), environ)
    )["services"]
    return services


SERVICES = load("compose.yaml")
CERTS = SERVICES.pop("certs")
"""The job that makes the certificates of the roles."""


@pytest.fixture(params=CONFIGS)
def role(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def config_of(role: str, services: dict[str, dict[str, Any]] = SERVICES) -> Any:
    """The configuration that a role gets; ends the test where it would refuse to start."""
    service = services[role]
    environ = service.get("environment", {})
    return load_config(CONFIGS[role], service["command"], environ, prog=role, description="").config


def seconds(text: str) -> float:
    assert re.fullmatch(r"\d+s", text), text
    return float(text.removesuffix("s"))


def listens(role: str) -> set[str]:
    """Ports on which a role listens, besides that of its metrics."""
    config = config_of(role)
    if role == "frontend":
        return {str(config.port), str(config.grpc_port)}
    return {config.listen.rpartition(":")[2]}


def test_one_service_per_role() -> None:
    assert set(SERVICES) == set(CONFIGS)


def test_images_are_those_of_the_dockerfiles(role: str) -> None:
    service = SERVICES[role]
    assert service["image"] == f"pagewire/{role}:{VERSION}"
    build = service["build"]
    assert (DOCKER / build["context"]).resolve() == ROOT
    dockerfile = read_dockerfile(Path(ROOT, build["dockerfile"]))
    assert dockerfile.entry_point() == ["pagewire", role]
    assert service["user"] == dockerfile.last("USER")
    known = {text.partition("=")[0] for text in dockerfile.all_of("ARG")}
    assert set(build.get("args", ())) <= known


def test_it_is_confined(role: str) -> None:
    service = SERVICES[role]
    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "network_mode", "pid"} & set(service)


def test_flags_are_the_roles_own(role: str) -> None:
    config = config_of(role)
    exposed = set(read_dockerfile(DOCKER / f"{role}.Dockerfile").last("EXPOSE").split())
    assert listens(role) | {str(config.metrics_port)} == exposed
    host = config.host if role == "frontend" else config.listen.rpartition(":")[0]
    assert host == "0.0.0.0"
    assert not any("api-key" in word for word in SERVICES[role]["command"])


def test_health_is_asked_where_it_listens(role: str) -> None:
    check = SERVICES[role]["healthcheck"]
    kind, *words = check["test"]
    assert kind == "CMD"
    program, word, address = words
    assert (program, word) == ("pagewire", "health")
    match = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/ready|/health/readiness)", address)
    assert match is not None
    # Where gRPC has TLS, health is beside the metrics.
    assert (match[2] == "/ready") is (match[1] in listens(role)) is (role == "frontend")
    assert match[1] in (*listens(role), str(config_of(role).metrics_port))
    assert seconds(check["timeout"]) <= seconds(check["interval"])
    assert "start_period" in check
    # What hangs is shown as fast as on Kubernetes.
    assert seconds(check["interval"]) * check["retries"] + seconds(check["timeout"]) <= 15


def test_what_is_dialled_listens() -> None:
    dialled = [
        *config_of("frontend").scheduler,
        config_of("worker").scheduler,
        config_of("worker").advertise_address,
        *config_of("scheduler").kvstore,
    ]
    assert len(dialled) == 4
    for address in dialled:
        host, _, port = address.partition(":")
        assert port in listens(host)


def test_only_the_frontend_is_published_and_only_here() -> None:
    published = {role: service["ports"] for role, service in SERVICES.items() if "ports" in service}
    assert set(published) == {"frontend"}
    for text in published["frontend"]:
        host, _, port = text.rpartition(":")[0].partition(":")
        assert host == "127.0.0.1"
        assert text.endswith(f":{port}")
        assert port in listens("frontend")


def test_a_container_is_not_killed_while_it_drains(role: str) -> None:
    config = config_of(role)
    drain = getattr(config, "drain_seconds", 0)
    assert seconds(SERVICES[role]["stop_grace_period"]) >= drain + 15


@pytest.mark.parametrize(
    "environ", [{}, {"MODEL_NAME": "tiny", "MODEL_PATH": "org/tiny", "KVSTORE_MEMORY": "1GiB"}]
)
def test_frontend_and_worker_serve_the_same_model(environ: dict[str, str]) -> None:
    services = load("compose.yaml", **environ)
    worker = config_of("worker", services)
    assert config_of("frontend", services).model == (f"{worker.served_model_name}={worker.model}",)
    assert worker.model == environ.get("MODEL_PATH", "pagewire-builtin")
    assert config_of("kvstore", services).memory_size == (2**30 if environ else 2**28)


def test_the_gpu_override_changes_the_worker_only() -> None:
    override = load("compose.gpu.yaml")
    assert set(override) == {"worker"}
    change = override["worker"]
    assert set(change) == {"image", "build", "environment", "deploy"}
    assert change["image"].startswith(SERVICES["worker"]["image"])
    # Triton compiles when its first kernel runs.
    added = {"RUNTIME_PACKAGES": "gcc libc6-dev"}
    arguments = change["build"]["args"]
    assert arguments == {**dict.fromkeys(SERVICES["worker"]["build"]["args"], ""), **added}
    assert set(change["environment"]) == set(SERVICES["worker"]["environment"])
    (device,) = change["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}
    assert config_of("worker", {"worker": {**SERVICES["worker"], **change}}).device == "cuda"
    assert config_of("worker").device == "cpu"


def test_each_role_sees_its_own_certificate_and_no_other(role: str, tmp_path: Path) -> None:
    config, service = config_of(role), SERVICES[role]
    (mount,) = service["volumes"]
    assert (mount["target"], mount["read_only"]) == (config.tls_dir, True)
    assert not config.insecure
    assert service["depends_on"]["certs"] == {"condition": "service_completed_successfully"}
    folder = run_certs(tmp_path)
    files = read_files(TlsPaths.in_folder(folder / mount["volume"]["subpath"]))
    run_certs(tmp_path)
    assert read_files(TlsPaths.in_folder(folder / role)) == files, "they are made once"
    (folder / role / "tls.crt").unlink()
    run_certs(tmp_path)
    assert read_files(TlsPaths.in_folder(folder / role)).authority == files.authority


def run_certs(root: Path) -> Path:
    """Run the job with its volume at a folder; return the folder."""
    assert CERTS["entrypoint"] == ["pagewire", "certs", "init"]
    (volume,) = CERTS["volumes"]
    _, _, target = volume.partition(":")
    folder = root / "certs"
    words = [str(folder) if word == target else word for word in CERTS["command"]]
    assert command.run("certs", ["init", *words]) == 0
    return folder


def test_the_job_is_confined_and_ends() -> None:
    assert CERTS["restart"] == "no"
    assert CERTS["read_only"] is True
    assert CERTS["depends_on"] == {}
    dockerfile = read_dockerfile(DOCKER / "scheduler.Dockerfile")
    assert CERTS["image"] == SERVICES["scheduler"]["image"]
    assert any("/certs" in text and "10001" in text for text in dockerfile.all_of("RUN"))


@pytest.mark.long
def test_the_roles_serve_as_the_file_says(tmp_path: Path) -> None:
    """Their commands, with ports and folders of this machine."""
    certificates = run_certs(tmp_path)
    ports = {str(port): free_port() for port in (8000, 8001, 8100, 8200, 8300)}

    def here(role: str, word: str) -> str:
        flag, _, value = word.partition("=")
        if flag == "--tls-dir":
            return f"{flag}={certificates / role}"
        if flag in ("--metrics-host", "--host"):
            return f"{flag}=127.0.0.1"
        if flag == "--metrics-port":
            return f"{flag}={free_port()}"
        host, _, port = value.rpartition(":")
        if host or value in ports:
            return f"{flag}=127.0.0.1:{ports[port]}" if host else f"{flag}={ports[value]}"
        return word

    with contextlib.ExitStack() as stack:
        for role in ("scheduler", "kvstore", "worker", "frontend"):
            words = [here(role, word) for word in SERVICES[role]["command"]]
            process = subprocess.Popen(
                [sys.executable, "-m", "pagewire", role, *words],
                env=os.environ | SERVICES[role].get("environment", {}),
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
        url = f"http://127.0.0.1:{ports['8000']}"
        wait_until(lambda: is_ready(url), 120.0, "the frontend is ready")
        body = {"prompt": "Once", "max_tokens": 4}
        answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60)
        assert answer.status_code == 200, answer.text


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/ready", timeout=5).status_code == 200
    except httpx.TransportError:
        return False
