"""The compose files: they load, and what they say fits the roles, the images and one another."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.dockerfile import read_dockerfile

from pagewire_frontend.config import FrontendConfig
from pagewire_kvstore.config import KvStoreConfig
from pagewire_scheduler.config import SchedulerConfig
from pagewire_shared.process.settings import load_config
from pagewire_worker.config import WorkerConfig
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
    program, command, address = words
    assert (program, command) == ("pagewire", "health")
    match = re.fullmatch(r"(?:http://)?127\.0\.0\.1:(\d+)(/ready)?", address)
    assert match is not None
    assert match[1] in listens(role)
    assert (match[2] == "/ready") is address.startswith("http://") is (role == "frontend")
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
