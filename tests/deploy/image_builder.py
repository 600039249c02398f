"""Builds images where there is no container engine, with buildah as root, in storage of its own.

The base image is made with debootstrap under the name of the one that the Dockerfiles start from;
no registry is asked. It has Debian's Python, another version than the official image has.
"""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.source_tree import ROOT

BASE_IMAGE = "docker.io/library/python:3.12-slim"
BASE_PACKAGES = "python3,python3-pip,python3-venv,ca-certificates"
BASE_SUITE = "bookworm"

# What of the host `pip` needs in a RUN step to reach an index, where the host has it.
HOST_PATHS = ("/etc/ssl/certs", "/etc/pip.conf")


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What an image says of itself.

    Attributes:
        environ: NAME=VALUE texts.
        user: uid:gid.
    """

    environ: tuple[str, ...]
    entrypoint: tuple[str, ...]
    user: str
    folder: str
    stop_signal: str
    labels: dict[str, str]


class ImageBuilder:
    """Images in a folder.

    Args:
        folder: Holds the base system, and the storage that nobody else uses.
        volumes: More SOURCE:TARGET[:ro] for the RUN steps.
    """

    def __init__(self, folder: Path, volumes: Sequence[str] = ()) -> None:
        self._folder = folder
        self._volumes = [f"{path}:{path}:ro" for path in HOST_PATHS if Path(path).exists()]
        self._volumes += volumes
        folder.mkdir(parents=True, exist_ok=True)

    def make_base(self) -> None:
        """Make the base image, unless it is there."""
        if BASE_IMAGE in self._buildah("images", "--format", "{{.Name}}:{{.Tag}}").split():
            return
        system = self._folder / "base"
        archive = self._folder / "base.tar"
        if not archive.exists():
            include = f"--include={BASE_PACKAGES}"
            _run("debootstrap", "--variant=minbase", include, BASE_SUITE, str(system))
            unfinished = archive.with_suffix(".part")
            left_out = ("./dev/*", "./var/cache/apt/*", "./var/lib/apt/lists/*")
            excludes = [f"--exclude={pattern}" for pattern in left_out]
            _run("tar", "-C", str(system), *excludes, "-cf", str(unfinished), ".")
            unfinished.rename(archive)
        container = self._buildah("from", "scratch").strip()
        self._buildah("add", "--quiet", container, str(archive), "/")
        self._buildah("commit", "--quiet", "--rm", container, BASE_IMAGE)

    def build(self, role: str, arguments: Sequence[str] = ()) -> str:
        """Build a role's image and return its name; `arguments` are NAME=VALUE."""
        name = f"localhost/pagewire/{role}:trial"
        flags = [f"--build-arg={argument}" for argument in arguments]
        flags += [f"--volume={volume}" for volume in self._volumes]
        dockerfile = str(ROOT / "docker" / f"{role}.Dockerfile")
        where = ("--pull-never", "--isolation", "chroot", "--file", dockerfile, "--tag", name)
        self._buildah("build", *where, *flags, str(ROOT))
        return name

    def facts(self, image: str) -> ImageFacts:
        """Return what an image says of itself."""
        inspected = json.loads(self._buildah("inspect", "--type", "image", image))
        config: dict[str, Any] = inspected["OCIv1"]["config"]
        return ImageFacts(
            environ=tuple(config.get("Env", ())),
            entrypoint=tuple(config.get("Entrypoint", ())),
            user=config.get("User", ""),
            folder=config.get("WorkingDir", "/"),
            stop_signal=config.get("StopSignal", ""),
            labels=config.get("Labels", {}),
        )

    def mount(self, image: str) -> Path:
        """Return the folder under which the image's files are seen."""
        container = self._buildah("from", "--pull-never", image).strip()
        return Path(self._buildah("mount", container).strip())

    def tidy(self) -> None:
        """Remove what `mount` made, and images that newer ones replaced."""
        self._buildah("rm", "--all")
        self._buildah("rmi", "--prune")

    def _buildah(self, command: str, *words: str) -> str:
        storage = ("--root", str(self._folder / "storage"))
        state = ("--runroot", str(self._folder / "state"))
        return _run("buildah", *storage, *state, "--storage-driver=vfs", command, *words)


def unpacked_bytes(root: Path) -> int:
    """Return the sum of the sizes of an image's files."""
    return int(_run("du", "-sb", "--one-file-system", str(root)).split()[0])


def _run(*command: str) -> str:
    """Return the standard output. What a failed command wrote last is shown."""
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
    )
    if result.returncode:
        last = "\n".join((result.stdout + result.stderr).splitlines()[-40:])
        raise SystemExit(f"{last}\n{' '.join(command)}: exit status {result.returncode}")
    return result.stdout
