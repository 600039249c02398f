"""LocalCluster: starts, watches, restarts and stops the processes of one deployment.

Its own thread carries out the decisions of supervision.py. It works beside a running event loop and
in scripts without a __main__ guard, because children are new programs, not forks.
"""

import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from pagewire.config import ServeConfig
from pagewire.local.capacity import Capacities
from pagewire.local.child_process import (
    ChildEvent,
    ChildProcess,
    Exited,
    LineReceived,
    StatusReceived,
)
from pagewire.local.devices import assign_devices, torch_has_cuda, visible_devices
from pagewire.local.frontend_group import mint_names
from pagewire.local.layout import ChildSpec, Endpoints, child_environment, plan_children
from pagewire.local.notices import ChildReady, Loading, Notice, StandingBy, StoodDown
from pagewire.local.port_reservation import PortReservation, require_free_port
from pagewire.local.private_folder import PrivateFolder
from pagewire.local.process_activity import Activity, ActivityMeter
from pagewire.local.standbys import Standbys
from pagewire.local.supervision import (
    Action,
    BecameReady,
    Ended,
    Restarting,
    Signal,
    Start,
    supervise,
)
from pagewire.local.watchdog import Hung, Prepare, Watchdog
from pagewire.models import served_models
from pagewire.start_checks import check_start
from pagewire_shared.errors import StartupError
from pagewire_shared.process.allocator import with_allocator_settings
from pagewire_shared.process.backoff import Backoff
from pagewire_shared.rpc.address import Address, parse_address

RESTART_FIRST_SECONDS = 0.1
RESTART_MAX_SECONDS = 10.0
MAX_EVENTS_A_TURN = 256


@dataclass(frozen=True, slots=True)
class _Stop:
    pass


@dataclass(frozen=True, slots=True)
class _Run:
    pass


@dataclass(frozen=True, slots=True)
class _Received:
    """An event of a process; a child and its standby have the same name."""

    process: ChildProcess
    event: ChildEvent


class LocalCluster:
    """All roles on this machine, Unix sockets between them.

    Args:
        config: Settings of the deployment.
        observer: Called with every Notice from the cluster's thread; must not block.
        has_http: Listen on the host and ports of `config`; otherwise only on a Unix socket (gRPC).

    Raises:
        StartupError: A missing model, a taken port, or an invalid address.
    """

    def __init__(
        self,
        config: ServeConfig,
        *,
        observer: Callable[[Notice], None] | None = None,
        has_http: bool = True,
    ) -> None:
        if config.frontends > 1 and not has_http:
            raise StartupError(
                "--frontends: without a port there is one frontend", field="--frontends"
            )
        self.models = served_models(config.model, config.first_name)
        for address in config.kvstore:
            parse_address(address, setting="--kvstore")
        check_start(config, self.models)
        self.config = config
        self.capacities = Capacities()
        self._observer = observer
        self._folder = PrivateFolder()
        host = config.host if has_http else ""
        socket = str(self._folder.path / "grpc.sock")
        names = mint_names(config.frontends)
        self._endpoints = Endpoints(host, *config.ports, socket, names)
        self._reservations: list[PortReservation] = []
        self._events: queue.SimpleQueue[_Received | _Stop | _Run] = queue.SimpleQueue()
        self._processes: dict[str, ChildProcess] = {}
        self._standbys = Standbys(self._launch)
        self._specs = {spec.name: spec for spec in self._plan()}
        self._supervision = supervise(
            [(spec.name, spec.starts_after, spec.stop_rank) for spec in self._specs.values()],
            lambda: Backoff(RESTART_FIRST_SECONDS, RESTART_MAX_SECONDS),
        )
        self._watchdog = Watchdog(time.monotonic(), is_on=config.watchdog)
        self._meter = ActivityMeter()
        self._ready_or_ended = threading.Event()
        self._ended = threading.Event()
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._run, name="pagewire-cluster", daemon=True)

    @property
    def grpc_address(self) -> str:
        """Address of the public gRPC API: host:port or unix:path."""
        if not self._endpoints.host:
            return f"unix:{self._endpoints.socket}"
        return str(Address(_dialled(self._endpoints.host), self._endpoints.grpc_port))

    @property
    def http_url(self) -> str | None:
        """Base URL of the HTTP API, without /v1; None without HTTP."""
        if not self._endpoints.host:
            return None
        scheme = "https" if self.config.ssl_certfile else "http"
        return f"{scheme}://{Address(_dialled(self._endpoints.host), self._endpoints.port)}"

    def pids(self, role: str | None = None) -> dict[str, int]:
        """Return name -> process id of the running children, only of `role` if given."""
        return {
            name: process.pid
            for name, process in list(self._processes.items())
            if role in (None, self._specs[name].role)
        }

    def start(self) -> None:
        """Start the processes and return at once. Raises StartupError when a port is taken."""
        try:
            if self._endpoints.host:
                self._claim_ports()
        except StartupError:
            self._release()
            raise
        self._events.put(_Run())
        self._thread.start()

    def wait_ready(self, timeout_seconds: float | None = None) -> None:
        """Block until every process is ready.

        Raises:
            StartupError: A process cannot start (the reason), or the timeout passed.
        """
        if not self._ready_or_ended.wait(timeout_seconds):
            raise StartupError(f"not ready after {timeout_seconds:g} s")
        if self._failure is not None:
            raise StartupError(self._failure)
        if self._ended.is_set():
            raise StartupError("stopped before it was ready")

    def request_stop(self) -> None:
        """Ask all processes to end and return at once; a second call kills them."""
        self._events.put(_Stop())

    def stop(self) -> None:
        """End all processes and wait for their end. Has no effect when already stopped."""
        if self._thread.ident is None:
            self._release()
            self._ended.set()
            return
        if not self._ended.is_set():
            self.request_stop()
            self._ended.wait()
        self._thread.join()

    def _plan(self) -> tuple[ChildSpec, ...]:
        config = self.config
        devices = assign_devices(
            config.device,
            len(self.models) * len(config.worker_roles),
            visible_devices(os.environ),
            has_cuda=torch_has_cuda(),
        )
        return plan_children(config, self.models, self._folder.path, self._endpoints, devices)

    def _claim_ports(self) -> None:
        """Refuse taken ports; reserve ports that several frontends share."""
        named = self.config.grpc_port is not None
        grpc_flag = "--grpc-port" if named else "--grpc-port, the port after --port"
        wanted = (self._endpoints.port, "--port"), (self._endpoints.grpc_port, grpc_flag)
        host = self._endpoints.host
        if len(self._endpoints.names) == 1:
            for port, setting in wanted:
                require_free_port(host, port, setting)
            return
        for port, setting in wanted:
            self._reservations.append(PortReservation(host, port, setting=setting))
        http, grpc = (reservation.port for reservation in self._reservations)
        self._set_ports(http, grpc)

    def _release(self) -> None:
        self._folder.remove()
        for reservation in self._reservations:
            reservation.close()

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self._handle_events()
                if not self._ended.is_set():
                    self._on_time(time.monotonic())
        finally:
            if not self._ended.is_set():
                # Only a bug of this module leads here; the children must not outlive it.
                self._failure = "the supervisor of the processes failed"
                for process in self._processes.values():
                    process.kill()
                self._standbys.end()
            self._release()
            self._ended.set()
            self._ready_or_ended.set()

    def _handle_events(self) -> None:
        """Wait for an event until an action is due, then handle all events that have arrived.

        Events are handled before `on_time`, so that an answer counts before a hang is detected.
        """
        due = (self._supervision.next_due(), self._watchdog.next_tick)
        instants = [instant for instant in due if instant is not None]
        timeout = max(0.0, min(instants) - time.monotonic()) if instants else None
        try:
            self._handle(self._events.get(timeout=timeout))
            for _ in range(MAX_EVENTS_A_TURN):
                if not self._ended.is_set():
                    self._handle(self._events.get_nowait())
        except queue.Empty:
            return

    def _on_time(self, now: float) -> None:
        self._carry_out(self._supervision.on_time(now))
        for action in self._watchdog.on_time(now, lambda name: self._look(name, now)):
            if isinstance(action, Hung):
                self._carry_out(self._supervision.on_hung(action.name, action.reason))
            elif isinstance(action, Prepare):
                self._prepare(action.name)
            elif (process := self._processes.get(action.name)) is not None:
                process.ask()

    def _look(self, name: str, now: float) -> Activity:
        process = self._processes.get(name)
        return Activity.UNKNOWN if process is None else self._meter.look(process.pid, now)

    def _note_answer(self, name: str, *, is_alive: bool) -> None:
        process = self._processes.get(name)
        if process is not None:
            self._meter.forget(process.pid)
        for action in self._watchdog.answered(name, is_alive=is_alive):
            if isinstance(action, Hung):
                self._carry_out(self._supervision.on_hung(action.name, action.reason))
            elif self._standbys.dismiss(name):
                self._notify(StoodDown(name, f"{name} answers again"))

    def _prepare(self, name: str) -> None:
        if self._supervision.is_stopping or name in self._standbys:
            return
        try:
            pid = self._standbys.prepare(self._specs[name])
        except OSError as error:
            # No memory or no process is left; a restart without a standby is only slower.
            self._notify(StoodDown(name, str(error)))
        else:
            self._notify(StandingBy(name, pid))

    def _handle(self, event: _Received | _Stop | _Run) -> None:
        now = time.monotonic()
        match event:
            case _Run():
                self._carry_out(self._supervision.start(now))
            case _Stop():
                self._carry_out(self._supervision.on_stop(now))
            case _Received(process, received) if self._standbys.owns(process):
                self._on_standby(process, received)
            case _Received(_, received):
                self._on_child_event(received, now)

    def _on_standby(self, process: ChildProcess, event: ChildEvent) -> None:
        """Show the events of a standby process, without passing them to the supervision."""
        match event:
            case LineReceived():
                self._notify(event)
            case StatusReceived(name, {"event": "failed", "message": message}):
                self._notify(LineReceived(name, f"the replacement: {message}"))
            case Exited(name, _, reason) if self._standbys.exited(process):
                self._notify(StoodDown(name, reason))

    def _on_child_event(self, event: ChildEvent, now: float) -> None:
        match event:
            case LineReceived():
                self._notify(event)
            case StatusReceived(name, status):
                self._on_status(name, status, now)
            case Exited(name, status, reason):
                process = self._processes.pop(name, None)
                if process is not None:
                    self._meter.forget(process.pid)
                self._watchdog.ended(name)
                has_standby = name in self._standbys
                self._carry_out(
                    self._supervision.on_exit(name, reason, status, now, has_standby=has_standby)
                )

    def _on_status(self, name: str, status: dict[str, object], now: float) -> None:
        match status["event"]:
            case "loading":
                fraction = status.get("fraction")
                done = float(fraction) if isinstance(fraction, int | float) else None
                self._notify(Loading(name, done, str(status.get("detail", ""))))
            case "listening" if self._specs[name].role == "frontend":
                self._learn_ports(status)
            case "alive":
                self._note_answer(name, is_alive=status.get("is_alive") is not False)
            case "ready":
                self._watchdog.ready(name)
                self.capacities.note(status)
                self._notify(ChildReady(name))
                self._carry_out(self._supervision.on_ready(name, now))
            case "failed":
                self._supervision.on_failed(name, str(status.get("message", "")))

    def _learn_ports(self, status: dict[str, object]) -> None:
        """Note the ports that the system picked, so that a restarted frontend gets them again."""
        if not self._endpoints.host:
            return
        http = str(status.get("http", "")).removeprefix("http://")
        grpc = str(status.get("grpc", ""))
        self._set_ports(
            parse_address(http, setting="frontend").port,
            parse_address(grpc, setting="frontend").port,
        )

    def _set_ports(self, http: int, grpc: int) -> None:
        self._endpoints = replace(self._endpoints, port=http, grpc_port=grpc)
        self._specs = {spec.name: spec for spec in self._plan()}

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Start(name):
                    self._spawn(self._specs[name])
                case Signal(name, is_kill):
                    process = self._processes.get(name)
                    self._watchdog.ended(name)
                    if process is not None:
                        process.kill() if is_kill else process.terminate()
                case Restarting():
                    self._notify(action)
                case BecameReady():
                    self._ready_or_ended.set()
                    self._notify(action)
                case Ended(failure):
                    self._failure = failure
                    self._standbys.end()
                    self._release()
                    self._ended.set()
                    self._ready_or_ended.set()
                    self._notify(action)

    def _spawn(self, spec: ChildSpec) -> None:
        """Let the standby process serve, or start a new process."""
        self._processes[spec.name] = self._standbys.take(spec.name) or self._launch(spec)
        self._watchdog.started(spec.name, spec.role, time.monotonic())

    def _launch(self, spec: ChildSpec, *, is_standby: bool = False) -> ChildProcess:
        environ = with_allocator_settings(child_environment(os.environ), spec.role)
        environ.update(spec.environ)
        command = [*spec.command, "--standby"] if is_standby else spec.command
        return ChildProcess(
            name=spec.name, role=spec.role, command=command, environ=environ, post=self._post
        )

    def _post(self, process: ChildProcess, event: ChildEvent) -> None:
        self._events.put(_Received(process, event))

    def _notify(self, notice: Notice) -> None:
        if self._observer is not None:
            self._observer(notice)


def _dialled(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
