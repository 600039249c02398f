"""What the Dockerfiles say, without building them; `make images-test` builds and runs them."""

import importlib.metadata
import re
import runpy
import tomllib
from pathlib import Path

import pytest
from deploy.dockerfile import Context, Dockerfile, read_dockerfile
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.source_tree import ROOT, package_folders, relative

TORCH_FREE = ("frontend", "scheduler", "kvstore")
PORTS = {
    "frontend": {"8000", "8001", "9090"},
    "scheduler": {"8100", "9090"},
    "worker": {"8300", "9090"},
    "kvstore": {"8200", "9090"},
}
OF_ROLES = runpy.run_path(str(ROOT / "docker" / "inventory.py"))["OF_ROLES"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(params=PORTS)
def role(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def dockerfile(role: str) -> Dockerfile:
    return read_dockerfile(ROOT / "docker" / f"{role}.Dockerfile")


@pytest.fixture(scope="module")
def context() -> Context:
    return Context(ROOT / ".dockerignore")


def test_each_role_has_a_dockerfile() -> None:
    found = {path.stem for path in (ROOT / "docker").glob("*.Dockerfile")}
    assert found == set(PORTS)
    assert found == {path.name for path in (ROOT / "services").iterdir() if path.is_dir()}


def test_what_builds_is_not_what_runs(dockerfile: Dockerfile) -> None:
    builder, final = dockerfile.stages
    assert builder[0].rest == "${BASE_IMAGE} AS builder"
    assert final[0].rest == "${BASE_IMAGE}"
    assert [step.rest for step in final if step.word == "COPY"] == [
        "--from=builder /opt/pagewire /opt/pagewire"
    ]
    for step in final:
        assert "pip" not in step.rest.split()
        if step.word == "RUN":  # what nobody asked for is not installed
            assert step.rest.startswith(('if [ -n "$RUNTIME_PACKAGES" ]', "install -d "))
    assert [text for text in dockerfile.all_of("ARG") if "RUNTIME_PACKAGES" in text] in (
        [],
        ['RUNTIME_PACKAGES=""'],
    )


def test_the_base_is_named_and_may_be_another(dockerfile: Dockerfile) -> None:
    assert [step.word for step in dockerfile.head] == ["ARG", "ARG"]
    version, base = (step.rest for step in dockerfile.head)
    assert base == "BASE_IMAGE=docker.io/library/python:${PYTHON_VERSION}-slim"
    name, _, number = version.partition("=")
    assert name == "PYTHON_VERSION"
    classifiers = [f"Programming Language :: Python :: {number}"]
    assert set(classifiers) <= set(PROJECT["classifiers"])
    others = [step.rest for step in dockerfile.steps if step is not dockerfile.head[0]]
    assert [text for text in others if number in text or "latest" in text] == []


def test_it_runs_confined(role: str, dockerfile: Dockerfile) -> None:
    assert dockerfile.last("USER") == "10001:10001"
    assert dockerfile.last("STOPSIGNAL") == "SIGTERM"
    assert dockerfile.entry_point() == ["pagewire", role]
    assert set(dockerfile.last("EXPOSE").split()) == PORTS[role]
    environ = dict(text.partition("=")[::2] for text in dockerfile.last("ENV").split())
    assert environ["HOME"] == dockerfile.last("WORKDIR") == "/tmp"
    assert environ["PYTHONDONTWRITEBYTECODE"] == "1"
    assert environ["PATH"].startswith("/opt/pagewire/bin:")
    assert f'org.opencontainers.image.title="pagewire-{role}"' in dockerfile.last("LABEL")


def test_only_the_roles_own_extras_are_installed(role: str, dockerfile: Dockerfile) -> None:
    # Nothing can be installed into a container, and traces are a flag of the frontend.
    extras = ",".join(OF_ROLES[role])
    installs = [text for text in dockerfile.all_of("RUN") if " install " in text and "pip" in text]
    assert re.findall(r"'\.(\[.*?\])?'", " ".join(installs)) == [f"[{extras}]"]
    for text in installs:
        assert "--no-cache-dir" in text
        assert "--no-compile" in text
        assert "--constraint constraints.txt" in text
    assert f"--require-hashes --requirement {role}.txt" in installs[-1]
    assert "--invalidation-mode unchecked-hash /opt/pagewire/lib" in installs[-1]


def test_no_secret_passes_through(dockerfile: Dockerfile) -> None:
    secret = re.compile(r"token|passw|secret|credential|_key", re.IGNORECASE)
    names = [
        text.partition("=")[0]
        for word in ("ARG", "ENV")
        for rest in dockerfile.all_of(word)
        for text in rest.split()
    ]
    assert [name for name in names if secret.search(name)] == []
    assert not any(re.search(r"https?://[^/\s]*@", step.rest) for step in dockerfile.steps)


def test_what_is_copied_is_there_and_is_all_packages(
    dockerfile: Dockerfile, context: Context
) -> None:
    sources = [
        name.rstrip("/")
        for rest in dockerfile.all_of("COPY")
        if not rest.startswith("--from")
        for name in rest.split()[:-1]
    ]
    for name in sources:
        assert (ROOT / name).exists(), name
        assert context.holds(name), name
    packages = [relative(folder) for folder in package_folders()]
    assert [name for name in packages if not name.startswith(tuple(sources))] == []
    assert {"pyproject.toml", "README.md", *PROJECT["license-files"]} <= set(sources)


def test_what_is_left_out_of_the_sources_is_there(dockerfile: Dockerfile) -> None:
    for rest in dockerfile.all_of("RUN"):
        if rest.startswith("rm "):
            for pattern in rest.split()[1:]:
                assert pattern.startswith("-") or list(ROOT.glob(pattern)), pattern


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".venv/bin/python",
        ".env",
        "tests/conftest.py",
        "docs/metrics.md",
        "models/builtin/train.py",
        "docker/compose.yaml",
        "protos/generate.py",
        "pagewire/__pycache__/models.cpython-311.pyc",
        "services/worker/pagewire_worker.egg-info/PKG-INFO",
        "id_rsa",
    ],
)
def test_it_is_kept_out_of_builds(path: str, context: Context) -> None:
    assert not context.holds(path)


def test_every_file_of_every_package_gets_into_builds(context: Context) -> None:
    files = [
        relative(path)
        for folder in package_folders()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    ]
    assert len(files) > 100
    assert [path for path in files if not context.holds(path)] == []


def test_the_workers_torch_is_the_one_of_its_extra() -> None:
    wanted = [text for text in PROJECT["optional-dependencies"]["worker"] if "torch" in text]
    arguments = read_dockerfile(ROOT / "docker" / "worker.Dockerfile").all_of("ARG")
    assert [text for text in arguments if text.startswith("TORCH=")] == [f'TORCH="{wanted[0]}"']


def test_constraints_are_exact_versions() -> None:
    lines = Path(ROOT, "docker", "constraints.txt").read_text().splitlines()
    for line in filter(None, (line.partition("#")[0].strip() for line in lines)):
        (specifier,) = Requirement(line).specifier
        assert specifier.operator == "==", line


def closure(role: str) -> set[str]:
    """The distributions that `pagewire[role]` brings, as the installed ones name each other."""
    waiting = [Requirement(text) for text in PROJECT["dependencies"]]
    waiting += [Requirement(text) for text in PROJECT["optional-dependencies"][role]]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement = waiting.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key in seen:
            continue
        seen.add(key)
        for text in importlib.metadata.requires(requirement.name) or ():
            needed = Requirement(text)
            extras = ("", *requirement.extras)
            if needed.marker is None or any(needed.marker.evaluate({"extra": e}) for e in extras):
                waiting.append(needed)
    return {name for name, _ in seen}


@pytest.mark.parametrize("role", TORCH_FREE)
def test_nothing_brings_torch_but_the_worker(role: str) -> None:
    found = closure(role)
    assert {"grpcio", "numpy", "prometheus-client"} <= found
    assert found & {"torch", "transformers", "triton", "safetensors"} == set()


def test_the_closure_sees_what_a_package_brings() -> None:
    assert {"torch", "transformers", "sympy"} <= closure("worker")
    assert "huggingface-hub" in closure("frontend")
