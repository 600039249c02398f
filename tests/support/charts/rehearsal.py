"""A release of the chart rehearsed on one machine: each pod is a process in a network namespace,
with the arguments, environment and mounted files of its manifest; Services have addresses of their
own or name pods; probes decide who gets connections. Needs root and iproute2.

What is not rehearsed: images, users, resources, NetworkPolicies. Folders that pods mount and that
this machine does not have are made, and removed again.
"""

import contextlib
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.charts.charts import Object, Pods, of_kind, pods_of, selects
from support.charts.kubelet import Kubelet
from support.charts.pod_plans import PodPlan, fill, plan_pod
from support.processes import service_proxy
from support.processes.namespaces import Namespace, Network
from support.processes.processes import wait_until
from support.processes.role_processes import Place, RoleProcess

READY_SECONDS = 180.0
# What a process under test brings of its own.
_LEFT_OUT = ("/tmp", "/dev/shm")


@dataclass
class Pod:
    """A pod that runs, or has run."""

    plan: PodPlan
    space: Namespace
    process: RoleProcess
    kubelet: Kubelet
    is_ending: bool = False

    @property
    def host(self) -> str:
        """Its address."""
        return self.space.host


@dataclass
class Ending:
    """How a pod ended: its exit status, and the seconds since the order to end."""

    pod: str
    status: int
    seconds: float


@dataclass
class Rehearsal:
    """A release that runs.

    Attributes:
        hosts: Name -> address, as every pod sees them in /etc/hosts.
    """

    objects: Sequence[Object]
    namespace: str
    network: Network
    folder: Path
    stack: contextlib.ExitStack
    pods: list[Pod] = field(default_factory=list)
    hosts: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._hosts_file = self.folder / "hosts"
        self._hosts_file.touch()

    # Services

    def serve_services(self) -> None:
        """Give an address to every Service that has one of its own."""
        for service in of_kind(self.objects, "Service"):
            if service["spec"].get("clusterIP") == "None":
                continue
            name = service["metadata"]["name"]
            space = self.network.add(f"svc{next(self._numbers)}")
            (self.folder / f"{name}.json").write_text("[]")
            ports = [f"{port['port']}={self._target(service, port)}" for port in _ports(service)]
            command = [*space.command, sys.executable, str(service_proxy.__file__)]
            endpoints = str(self.folder / f"{name}.json")
            proxy = subprocess.Popen([*command, endpoints, *ports])
            self.stack.callback(_kill, proxy)
            self._name(name, space.host)

    def _target(self, service: Object, port: Object) -> int:
        target = port.get("targetPort", port["port"])
        owners = (
            pods
            for pods in pods_of(self.objects)
            if selects(service["spec"]["selector"], pods.labels)
        )
        return target if isinstance(target, int) else next(owners).ports[target]

    def update_endpoints(self) -> None:
        """Tell proxies which pods get connections."""
        with self._lock:
            for service in of_kind(self.objects, "Service"):
                spec = service["spec"]
                path = self.folder / f"{service['metadata']['name']}.json"
                all_of_them = spec.get("publishNotReadyAddresses", False)
                hosts = [
                    pod.host
                    for pod in self.pods
                    if selects(spec["selector"], pod.plan.labels)
                    and not pod.is_ending
                    and (pod.kubelet.is_ready or all_of_them)
                ]
                if path.exists():
                    new = path.with_suffix(".new")
                    new.write_text(json.dumps(hosts))
                    new.rename(path)

    def _name(self, name: str, host: str) -> None:
        """Let every pod find `host` under the names that cluster DNS gives it."""
        suffixes = ("", f".{self.namespace}", f".{self.namespace}.svc.cluster.local")
        self.hosts |= {name + suffix: host for suffix in suffixes}
        lines = ["127.0.0.1 localhost", *(f"{at} {what}" for what, at in self.hosts.items())]
        # In place: the file is mounted.
        self._hosts_file.write_text("\n".join(lines) + "\n")

    # Pods

    def start(self, plan: PodPlan) -> Pod:
        """Start a pod; `wait_ready` waits for it."""
        space = self.network.add(f"pod{next(self._numbers)}")
        environ = plan.environ(space.host, self.objects)
        args = [fill(str(arg), environ) for arg in plan.args]
        place = Place(
            space.host,
            prefix=(*space.command[:4], *self._mounts(plan)),
            program=("-P", "-m", "pagewire", plan.role),
            environ=environ,
        )
        for service in of_kind(self.objects, "Service"):
            spec = service["spec"]
            if spec.get("clusterIP") == "None" and selects(spec["selector"], plan.labels):
                self._name(f"{plan.name}.{service['metadata']['name']}", space.host)
                self._name(service["metadata"]["name"], space.host)
        process = self.stack.enter_context(RoleProcess(plan.name, plan.role, place, args))
        kubelet = Kubelet(plan.container, space.host, self.update_endpoints)
        self.stack.callback(kubelet.end)
        pod = Pod(plan, space, process, kubelet)
        self.pods.append(pod)
        self.update_endpoints()
        return pod

    def _mounts(self, plan: PodPlan) -> tuple[str, ...]:
        """Return what runs a command with the pod's files in place."""
        steps = ["mount -t tmpfs tmpfs /dev/shm", f"mount --bind {self._hosts_file} /etc/hosts"]
        for target, files in plan.files.items():
            if target in _LEFT_OUT:
                continue
            source = self.folder / plan.name / target.strip("/").replace("/", "-")
            source.mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                (source / name).write_bytes(content)
            self._make_mount_point(Path(target))
            steps.append(f"mount --bind {source} {target}")
        return ("sh", "-c", " && ".join([*steps, 'exec "$@"']), "sh")

    def _make_mount_point(self, path: Path) -> None:
        missing = [one for one in (path, *path.parents) if not one.exists()]
        for one in reversed(missing):
            one.mkdir()
            self.stack.callback(_remove_empty, one)

    def run_to_end(self, plan: PodPlan) -> subprocess.CompletedProcess[str]:
        """Run a pod that ends by itself."""
        space = self.network.add(f"pod{next(self._numbers)}")
        environ = plan.environ(space.host, self.objects)
        words = [fill(str(word), environ) for word in (*plan.command, *plan.args)]
        # The image's Python is this one.
        program = [sys.executable if words[0] == "python" else words[0], *words[1:]]
        return subprocess.run(
            [*space.command[:4], *self._mounts(plan), *program],
            env=os.environ | environ,
            capture_output=True,
            text=True,
            timeout=READY_SECONDS,
            check=False,
        )

    def wait_ready(self, *pods: Pod) -> None:
        """Wait until probes have succeeded; fail with what the pod wrote when it has ended."""
        for pod in pods:

            def is_decided(pod: Pod = pod) -> bool:
                return pod.kubelet.is_ready or pod.process.process.poll() is not None

            try:
                wait_until(is_decided, READY_SECONDS, f"{pod.plan.name} is ready")
            except AssertionError as error:
                error.add_note(pod.process.log)
                raise
            assert pod.kubelet.is_ready, f"{pod.plan.name} ended: {pod.process.log}"

    def end(self, pod: Pod) -> Ending:
        """End a pod as a cluster does: no new connections, preStop, SIGTERM, its grace."""
        pod.is_ending = True
        began = time.monotonic()
        self.update_endpoints()
        hook = pod.plan.container.get("lifecycle", {}).get("preStop")
        if hook is not None:
            subprocess.run([*pod.space.command, *hook["exec"]["command"]], check=True)
        pod.process.process.terminate()
        left = pod.plan.grace_seconds - (time.monotonic() - began)
        status = pod.process.wait_end(left)
        pod.kubelet.end()
        return Ending(pod.plan.name, status, time.monotonic() - began)

    def roll(self, owner: str) -> list[Ending]:
        """Replace the pods of an owner as its strategy says; return how the old ones ended."""
        (pods,) = [one for one in pods_of(self.objects) if one.name == owner]
        old = [pod for pod in self.pods if pod.plan.owner == owner and not pod.is_ending]
        endings = []
        for pod in old:
            if _surges(pods):
                number = next(self._numbers)
                self.wait_ready(self.start(plan_pod(pods, number, self.objects)))
                endings.append(self.end(pod))
            else:
                endings.append(self.end(pod))
                self.wait_ready(self.start(pod.plan))
        return endings


def _surges(pods: Pods) -> bool:
    if pods.owner["kind"] != "Deployment":
        return False
    strategy = pods.owner["spec"]["strategy"]
    return bool(strategy["type"] != "Recreate" and strategy["rollingUpdate"]["maxSurge"])


@contextmanager
def rehearse(objects: Sequence[Object], namespace: str, folder: Path) -> Iterator[Rehearsal]:
    """Start everything at once, as a cluster does, and wait for nobody."""
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(Network())
        rehearsal = Rehearsal(objects, namespace, network, folder, stack)
        rehearsal.serve_services()
        for pods in pods_of(objects, "frontend", "scheduler", "worker", "kvstore"):
            if pods.owner["kind"] == "Pod":
                continue
            for number in range(pods.owner["spec"]["replicas"]):
                rehearsal.start(plan_pod(pods, number, objects))
        yield rehearsal


def _ports(service: Object) -> list[Object]:
    ports: list[Object] = service["spec"]["ports"]
    return ports


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _remove_empty(folder: Path) -> None:
    # Another run at the same time may use it.
    with contextlib.suppress(OSError):
        os.rmdir(folder)
