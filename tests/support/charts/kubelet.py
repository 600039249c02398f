"""Probes as a kubelet runs them: as written in a manifest, over the network, with its counts."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
import httpx
from grpc_health.v1 import health_pb2, health_pb2_grpc

_DEFAULTS = {
    "initialDelaySeconds": 0,
    "periodSeconds": 10,
    "timeoutSeconds": 1,
    "successThreshold": 1,
    "failureThreshold": 3,
}


def ask(probe: Mapping[str, Any], host: str, ports: Mapping[str, int]) -> bool:
    """Run a probe once. Raises KeyError for a kind that no manifest of ours has."""
    seconds = probe.get("timeoutSeconds", _DEFAULTS["timeoutSeconds"])
    if "httpGet" in probe:
        asked = probe["httpGet"]
        port = ports.get(asked["port"], asked["port"])
        try:
            scheme = asked.get("scheme", "HTTP").lower()
            url = f"{scheme}://{host}:{port}{asked['path']}"
            # As the kubelet does.
            answer = httpx.get(url, timeout=seconds, verify=False)
        except httpx.TransportError:
            return False
        return 200 <= answer.status_code < 400
    asked = probe["grpc"]
    with grpc.insecure_channel(f"{host}:{asked['port']}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service=asked.get("service", ""))
        try:
            answer = stub.Check(request, timeout=seconds)
        except grpc.RpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


@dataclass
class Kubelet:
    """Watches one pod in a thread of its own: the startup probe until it succeeds, then readiness
    and liveness, each with its own period.

    Attributes:
        history: (seconds since the start, "started", "ready", "not ready" or "dead") in order.
    """

    container: Mapping[str, Any]
    host: str
    on_change: Callable[[], None]
    history: list[tuple[float, str]] = field(default_factory=list)
    is_started: bool = False
    is_ready: bool = False

    def __post_init__(self) -> None:
        self._begin = time.monotonic()
        self._ended = threading.Event()
        self._ports = {p["name"]: p["containerPort"] for p in self.container.get("ports", ())}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_dead(self) -> bool:
        """Whether a probe would have had the pod killed."""
        return any(what == "dead" for _, what in self.history)

    def end(self) -> None:
        """Probe no more."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        if not self._start():
            return
        turns = [
            (_Count(self.container["readinessProbe"]), self._set_ready),
            (_Count(self.container["livenessProbe"]), self._set_alive),
        ]
        while not self._ended.wait(min(count.due for count, _ in turns) - time.monotonic()):
            for count, tell in turns:
                if count.due <= time.monotonic():
                    decided = count.add(ask(count.probe, self.host, self._ports))
                    if decided is not None:
                        tell(decided)

    def _start(self) -> bool:
        count = _Count(self.container["startupProbe"])
        while not self._ended.wait(count.due - time.monotonic()):
            decided = count.add(ask(count.probe, self.host, self._ports))
            if decided is not None:
                self.is_started = decided
                self._note("started" if decided else "dead")
                return decided
        return False

    def _set_ready(self, is_ready: bool) -> None:
        if is_ready is not self.is_ready:
            self.is_ready = is_ready
            self._note("ready" if is_ready else "not ready")
            self.on_change()

    def _set_alive(self, is_alive: bool) -> None:
        if not is_alive:
            self._note("dead")

    def _note(self, what: str) -> None:
        self.history.append((time.monotonic() - self._begin, what))


class _Count:
    """How often in a row a probe has succeeded or failed."""

    def __init__(self, probe: Mapping[str, Any]) -> None:
        self.probe = {**_DEFAULTS, **probe}
        self.due = time.monotonic() + self.probe["initialDelaySeconds"]
        self._is_success = False
        self._num = 0

    def add(self, is_success: bool) -> bool | None:
        """Count an answer; return what it decides, None for nothing."""
        self.due = time.monotonic() + self.probe["periodSeconds"]
        self._num = self._num + 1 if is_success is self._is_success else 1
        self._is_success = is_success
        wanted = self.probe["successThreshold" if is_success else "failureThreshold"]
        return is_success if self._num >= wanted else None
