"""Runs a role's process: configuration, logs, event loop, signals, and exit with its parent.

A role provides a coroutine `serve(config, context)`; all other parts are the same for all roles. A
parent may start a process ahead of need (--standby): it imports its code and waits (standby.py).
"""

import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from pagewire_shared.errors import PagewireError, StartupError
from pagewire_shared.process.logs import configure_logging
from pagewire_shared.process.loop_watch import watched_loop
from pagewire_shared.process.metrics import package_version, serve_metrics
from pagewire_shared.process.metrics_access import MetricsAccess
from pagewire_shared.process.probe_answers import PROBE, ProbeAnswers
from pagewire_shared.process.settings import load_config
from pagewire_shared.process.standby import GO, StandbyGate
from pagewire_shared.process.status import StatusReporter
from pagewire_shared.rpc import links
from pagewire_shared.rpc.address import LOOPBACK, Address, parse_address
from pagewire_shared.security import audit

_logger = logging.getLogger(__name__)

EXIT_FAILED = 1


class _HasProcessConfig(Protocol):
    @property
    def log_level(self) -> str: ...
    @property
    def log_format(self) -> str: ...
    @property
    def metrics_port(self) -> int | None: ...
    @property
    def metrics_host(self) -> str: ...
    @property
    def metrics_tls(self) -> bool: ...
    @property
    def metrics_token_file(self) -> str: ...
    @property
    def tls_dir(self) -> str | None: ...
    @property
    def insecure(self) -> bool: ...
    @property
    def audit_log(self) -> str: ...
    @property
    def exit_with_parent(self) -> bool: ...
    @property
    def standby(self) -> bool: ...


@dataclass(slots=True)
class ProcessContext:
    """Context of a role's `serve`, besides its configuration."""

    status: StatusReporter
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by SIGTERM and SIGINT: `serve` finishes and returns."""
    is_alive: bool = True
    """Whether the role makes progress, as far as it knows. If not, a parent that probes ends it."""

    def answer_probe(self) -> None:
        """Answer a probe of the parent: the event loop runs, and `is_alive` is the progress."""
        self.status.report("alive", is_alive=self.is_alive)


Config = TypeVar("Config", bound=_HasProcessConfig)
Serve = Callable[[Config, ProcessContext], Awaitable[None]]


def run_role(
    role: str,
    config_class: type[Config],
    load: Callable[[], Serve[Config]],
    *,
    description: str,
    argv: Sequence[str] | None = None,
) -> int:
    """Run one role until SIGTERM or SIGINT; return the exit status.

    0 after a signal, 1 with one line on standard error after a PagewireError. `load` imports the
    code that serves, which takes most of a start, and returns its entry point.
    """
    status = StatusReporter(role, is_managed=False)
    try:
        loaded = load_config(
            config_class,
            sys.argv[1:] if argv is None else argv,
            os.environ,
            prog=f"pagewire {role}",
            description=description,
        )
        config = loaded.config
        configure_logging(role, config.log_level, config.log_format)
        status = StatusReporter(role, is_managed=config.exit_with_parent)
        audit.use(config.audit_log, role)
        audit.note("started", version=package_version())
        links.use(config)
        context = ProcessContext(status)
        probes = ProbeAnswers(context.answer_probe)
        gate = StandbyGate()
        _show_stacks_on_signal()
        if config.exit_with_parent:
            _exit_with_parent(probes, gate)
        elif config.standby:
            raise StartupError("--standby needs --exit-with-parent", field="--standby")
        _run(_with_signals(role, config, load, context, probes, gate))
    except PagewireError as error:
        message = " ".join(error.message.split())
        status.report("failed", message=message)
        print(f"pagewire {role}: error: {message}", file=sys.stderr, flush=True)
        return EXIT_FAILED
    finally:
        audit.note("ended")
        audit.close()
    return 0


def _show_stacks_on_signal() -> None:
    """Let SIGUSR2 write the stacks of all threads to standard error, also while code holds the
    event loop or the interpreter: no call gets an answer then."""
    # Standard error may be closed, or no file.
    with contextlib.suppress(AttributeError, ValueError, OSError):
        faulthandler.register(signal.SIGUSR2, all_threads=True)


def _metrics_host(config: _HasProcessConfig) -> str:
    """Return the host of the metrics: by default that of the role, so that access is no wider."""
    if config.metrics_host:
        return config.metrics_host
    host: str | None = getattr(config, "host", None)
    listen: str | None = getattr(config, "listen", None)
    if host is None and listen is not None:
        host = parse_address(listen, setting="--listen").host
    return host or LOOPBACK


def _run(main: Any) -> None:
    # uvloop is 10-25 % faster on the step path; it does not exist for every platform.
    if sys.platform != "win32" and sys.implementation.name == "cpython":
        import uvloop

        uvloop.run(main)
    else:
        asyncio.run(main)


async def _with_signals(
    role: str,
    config: Config,
    load: Callable[[], Serve[Config]],
    context: ProcessContext,
    probes: ProbeAnswers,
    gate: StandbyGate,
) -> None:
    loop = asyncio.get_running_loop()
    probes.serve(loop)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, context.stop.set)
    serve = load()
    if config.standby:
        context.status.report("standby")
        if not await gate.wait(context.stop):
            return
    if config.metrics_port is not None:
        address = Address(_metrics_host(config), config.metrics_port)
        # In a thread without a running event loop, because it binds with its own loop.
        await asyncio.to_thread(serve_metrics, address, role, MetricsAccess(config))
    with watched_loop(lambda: context.status.is_serving, context.stop.is_set):
        await serve(config, context)


def _exit_with_parent(probes: ProbeAnswers, gate: StandbyGate) -> None:
    """Kill this process when its standard input closes; until then read the parent's messages.

    The parent has the other end of the pipe, so even kill -9 of the parent is detected at once on
    every platform. PR_SET_PDEATHSIG would fire when the starting *thread* ends, which breaks
    notebooks.
    """

    def watch() -> None:
        while said := os.read(0, 4096):
            if GO in said:
                gate.open()
            if PROBE in said:
                probes.asked()
        os._exit(EXIT_FAILED)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
