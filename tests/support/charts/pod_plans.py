"""Pods of rendered manifests as what has to be started: command, environment, files. Pure."""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from support.charts.charts import Object, Pods, of_kind

_VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


@dataclass(frozen=True, slots=True)
class PodPlan:
    """One pod.

    Attributes:
        name: Of the pod; its host name in a StatefulSet.
        owner: Name of what it belongs to.
        role: What its image runs.
        labels: What Services select by.
        args: Of the role, before variables are filled in.
        command: In place of what the image runs; empty where the manifest has none.
        env: As listed in the manifest.
        files: Folder -> name -> content, of Secrets and ConfigMaps that are mounted.
        container: Probes and life cycle, as written.
        grace_seconds: From the order to end until it is killed.
    """

    name: str
    owner: str
    role: str
    labels: Mapping[str, str]
    args: Sequence[str]
    command: Sequence[str]
    env: Sequence[Mapping[str, Any]]
    files: Mapping[str, Mapping[str, bytes]]
    container: Object
    grace_seconds: int

    def environ(self, host: str, objects: Sequence[Object]) -> dict[str, str]:
        """Return its environment when its address is `host`."""
        environ: dict[str, str] = {}
        for entry in self.env:
            environ[entry["name"]] = fill(self._value(entry, host, objects), environ)
        return environ

    def _value(self, entry: Mapping[str, Any], host: str, objects: Sequence[Object]) -> str:
        if "value" in entry:
            return str(entry["value"])
        source = entry["valueFrom"]
        if "fieldRef" in source:
            fields = {"status.podIP": host, "metadata.name": self.name}
            return fields[source["fieldRef"]["fieldPath"]]
        (reference,) = source.values()
        kind = {"secretKeyRef": "Secret", "configMapKeyRef": "ConfigMap"}[next(iter(source))]
        return _content(objects, kind, reference["name"])[reference["key"]].decode()


def fill(text: str, environ: Mapping[str, str]) -> str:
    """Replace $(NAME) as Kubernetes does: names that are not known stay."""
    return _VARIABLE.sub(lambda found: environ.get(found[1], found[0]), text)


def plan_pod(pods: Pods, number: int, objects: Sequence[Object]) -> PodPlan:
    """Return the pod with this number of equal ones."""
    container = pods.container
    volumes = {volume["name"]: volume for volume in pods.spec.get("volumes", ())}
    files = {}
    for mount in container.get("volumeMounts", ()):
        volume = volumes.get(mount["name"])
        found = None if volume is None else _mounted(volume, objects)
        if found is not None:
            files[mount["mountPath"]] = found
    return PodPlan(
        name=f"{pods.name}-{number}",
        owner=pods.name,
        role=pods.role,
        labels=pods.labels,
        args=container.get("args", ()),
        command=container.get("command", ()),
        env=container.get("env", ()),
        files=files,
        container=container,
        grace_seconds=pods.spec.get("terminationGracePeriodSeconds", 30),
    )


def _mounted(volume: Object, objects: Sequence[Object]) -> Mapping[str, bytes] | None:
    """Return the files of a volume; None for one that begins empty."""
    if "secret" in volume:
        kind, source, name = "Secret", volume["secret"], volume["secret"]["secretName"]
    elif "configMap" in volume:
        kind, source, name = "ConfigMap", volume["configMap"], volume["configMap"]["name"]
    else:
        return None
    content = _content(objects, kind, name)
    items = source.get("items")
    if items is None:
        return content
    return {item["path"]: content[item["key"]] for item in items}


def _content(objects: Sequence[Object], kind: str, name: str) -> dict[str, bytes]:
    (found,) = [one for one in of_kind(objects, kind) if one["metadata"]["name"] == name]
    if kind == "ConfigMap":
        return {key: value.encode() for key, value in found["data"].items()}
    plain = {key: value.encode() for key, value in found.get("stringData", {}).items()}
    coded = {key: base64.b64decode(value) for key, value in found.get("data", {}).items()}
    return coded | plain
