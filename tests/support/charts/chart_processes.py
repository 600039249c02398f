"""A release of the chart as processes of this machine: the command lines, environments and Secrets
that helm rendered, with other ports and folders. No container and no cluster."""

import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from support.charts.charts import Object, Pods, pods_of
from support.charts.pod_plans import plan_pod
from support.processes.processes import free_port, wait_until

ROLES = ("scheduler", "kvstore", "worker", "frontend")
READY_SECONDS = 90.0
ANSWER_SECONDS = 5.0


class ChartProcesses:
    """One process per role; a context manager that leaves none behind."""

    def __init__(self, objects: Sequence[Object], folder: Path) -> None:
        self.pods = {pods.role: pods for pods in pods_of(objects, *ROLES)}
        assert self.pods.keys() == set(ROLES)
        self._objects = objects
        self._folder = folder
        self._ports = {
            (role, number): free_port()
            for role, pods in self.pods.items()
            for number in pods.ports.values()
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "ChartProcesses":
        try:
            for role in ROLES:
                self.processes[role] = self._started(self.pods[role])
            wait_until(self._is_ready, READY_SECONDS, "the frontend is ready")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._ports['frontend', 8000]}"

    def _is_ready(self) -> bool:
        for role, process in self.processes.items():
            assert process.poll() is None, f"{role} ended: {self._log(role).read_text()}"
        return self._has_status(f"{self.url}/health")

    def _log(self, role: str) -> Path:
        return self._folder / f"{role}.log"

    def _started(self, pods: Pods) -> subprocess.Popen[bytes]:
        args = [self._here(pods.role, arg) for arg in pods.container["args"]]
        environ = {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        environ |= plan_pod(pods, 0, self._objects).environ("127.0.0.1", self._objects)
        environ |= {"HOME": str(self._folder), "HF_HUB_CACHE": str(self._folder / "hub")}
        with self._log(pods.role).open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "pagewire", pods.role, *args],
                env=environ,
                cwd=self._folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _here(self, role: str, arg: str) -> str:
        """Return an argument with this machine's ports and files."""
        flag, _, value = arg.partition("=")
        if flag == "--api-key-file":
            return f"{flag}={self._secret(self.pods[role], value)}"
        if flag == "--tls-dir":
            return f"{flag}={self._secrets(role, value)}"
        if flag in ("--host", "--metrics-host"):
            return f"{flag}=127.0.0.1"
        if flag in ("--port", "--grpc-port", "--metrics-port"):
            return f"{flag}={self._ports[role, int(value)]}"
        if address := re.fullmatch(r"[^/=]+:(\d{4})", value):
            number = int(address[1])
            (port,) = [own for (_, known), own in self._ports.items() if known == number]
            return f"{flag}=127.0.0.1:{port}"
        return arg

    def _secret(self, pods: Pods, path: str) -> Path:
        """Write what is mounted under `path`; return its file."""
        folder, _, name = path.rpartition("/")
        file = self._folder / name
        file.write_bytes(plan_pod(pods, 0, self._objects).files[folder][name])
        return file

    def _secrets(self, role: str, path: str) -> Path:
        """Write all that is mounted at `path`; return its folder."""
        folder = self._folder / f"{role}-tls"
        folder.mkdir(exist_ok=True)
        for name, content in plan_pod(self.pods[role], 0, self._objects).files[path].items():
            (folder / name).write_bytes(content)
        return folder

    def metrics(self, role: str) -> str:
        """Return what Prometheus would read."""
        url = f"http://127.0.0.1:{self._ports[role, self.pods[role].ports['metrics']]}/metrics"
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as response:
            text: str = response.read().decode()
            return text

    def _has_status(self, url: str) -> bool:
        try:
            with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as response:
                return bool(response.status == 200)
        except OSError:
            return False
