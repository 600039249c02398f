"""The chart rendered by the real helm, and its objects as tests ask about them."""

import functools
import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "helm" / "pagewire"
VALUES_FILES = (CHART / "values-cpu.yaml", *sorted((CHART / "examples").glob("*.yaml")))

Object = dict[str, Any]

# Where a pod's description is in each kind that has one.
_PODS = {
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "LeaderWorkerSet": ("spec", "leaderWorkerTemplate", "workerTemplate"),
    "Pod": (),
}


@dataclass(frozen=True, slots=True)
class Release:
    """What is rendered.

    Attributes:
        values: On top of `files`.
        files: Values files.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[Path] = ()
    name: str = "pw"
    namespace: str = "serving"
    flags: Sequence[str] = ()

    def command(self, helm: str, *verb: str) -> list[str]:
        """The call of helm; the values come on standard input."""
        files = [word for path in self.files for word in ("-f", str(path))]
        place = ["--namespace", self.namespace, *files, "-f", "-", *self.flags]
        return [helm, *verb, self.name, str(CHART), *place]


def run(helm: str, release: Release, *verb: str) -> subprocess.CompletedProcess[str]:
    """Call helm; the same call is made once."""
    return _called(tuple(release.command(helm, *verb)), json.dumps(dict(release.values)))


@functools.cache
def _called(command: tuple[str, ...], text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=60, check=False
    )


def render(helm: str, release: Release) -> list[Object]:
    """Return all objects of a release, its test included."""
    done = run(helm, release, "template")
    assert done.returncode == 0, done.stderr
    return [item for item in yaml.load_all(done.stdout, Loader=yaml.CSafeLoader) if item]


def refusal(helm: str, values: Mapping[str, Any]) -> str:
    """Return what helm says to values that it must not take."""
    done = run(helm, Release(values), "template")
    assert done.returncode != 0, f"taken: {values}"
    return done.stderr


def of_kind(objects: Sequence[Object], *kinds: str) -> list[Object]:
    return [item for item in objects if item["kind"] in kinds]


def named(objects: Sequence[Object], kind: str, name: str) -> Object:
    (found,) = [item for item in of_kind(objects, kind) if item["metadata"]["name"] == name]
    return found


@dataclass(frozen=True, slots=True)
class Pods:
    """Equal pods of one owner: its object, and the description of its pods."""

    owner: Object
    template: Object

    @property
    def name(self) -> str:
        name: str = self.owner["metadata"]["name"]
        return name

    @property
    def role(self) -> str:
        role: str = self.template["metadata"]["labels"]["app.kubernetes.io/component"]
        return role

    @property
    def labels(self) -> Mapping[str, str]:
        labels: Mapping[str, str] = self.template["metadata"]["labels"]
        return labels

    @property
    def spec(self) -> Object:
        spec: Object = self.template["spec"]
        return spec

    @property
    def container(self) -> Object:
        """The only one: no pod of this chart has two."""
        (container,) = self.spec["containers"]
        assert isinstance(container, dict)
        return container

    @property
    def ports(self) -> Mapping[str, int]:
        return {port["name"]: port["containerPort"] for port in self.container.get("ports", ())}

    def flags(self, flag: str) -> list[str]:
        """Values of `--flag=value`, in order."""
        words = [word.partition("=") for word in self.container["args"]]
        return [value for name, _, value in words if name == f"--{flag}"]


def pods_of(objects: Sequence[Object], *roles: str) -> list[Pods]:
    """Return who has pods; of `roles` only, if any are given."""
    found = []
    for item in of_kind(objects, *_PODS):
        template = item
        for key in _PODS[item["kind"]]:
            template = template[key]
        found.append(Pods(item, template))
    return [pods for pods in found if not roles or pods.role in roles]


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return bool(selector) and selector.items() <= labels.items()


def references(item: Any, key: str) -> Iterator[Any]:
    """Every value of `key`, anywhere in an object."""
    if isinstance(item, dict):
        for name, value in item.items():
            if name == key:
                yield value
            yield from references(value, key)
    elif isinstance(item, list):
        for value in item:
            yield from references(value, key)


def bytes_of(quantity: str) -> int:
    """Return bytes for a quantity of memory, such as 2Gi."""
    matched = re.fullmatch(r"(\d+)(|[KMGT]i)", quantity)
    assert matched, quantity
    return int(matched[1]) * 1024 ** " KMGT".index(matched[2][:1] or " ")
