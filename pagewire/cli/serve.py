"""`pagewire serve`: runs a LocalCluster, and prints addresses and an example once it is ready."""

import queue
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from pagewire.cli.config import describe
from pagewire.cli.progress import StartProgress
from pagewire.cli.ready_text import ReadyFacts, open_warning, ready_text
from pagewire.cli.settings import add_model, load, make_parser, quiet
from pagewire.config import ServeConfig
from pagewire.local.cluster import LocalCluster
from pagewire.local.notices import Notice
from pagewire.local.supervision import BecameReady, Ended
from pagewire_shared.errors import StartupError

DESCRIPTION = "Serve a model on this machine: one process per role, HTTP and gRPC."


class _StopRequested:
    """A signal handler puts this into the queue of notices."""


def run(name: str, argv: Sequence[str]) -> int:
    """Serve until SIGINT, SIGTERM or SIGHUP and return 0. Raises StartupError at a failed start."""
    parser = make_parser(name, ServeConfig, DESCRIPTION)
    add_model(parser)
    loaded, _ = load(parser, ServeConfig, argv)
    config = quiet(loaded)
    if config.log_level == "debug":
        print(describe(loaded), file=sys.stderr)
    # SimpleQueue.put may be called by a signal handler that interrupted a put.
    notices: queue.SimpleQueue[Notice | _StopRequested] = queue.SimpleQueue()

    def request_stop(number: int, frame: FrameType | None) -> None:
        notices.put(_StopRequested())

    cluster = LocalCluster(config, observer=notices.put)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, request_stop)
    progress = StartProgress()
    cluster.start()
    try:
        return _follow(cluster, notices, progress)
    finally:
        cluster.stop()


def _follow(
    cluster: LocalCluster,
    notices: "queue.SimpleQueue[Notice | _StopRequested]",
    progress: StartProgress,
) -> int:
    is_stopping = False
    while True:
        notice = notices.get()
        if isinstance(notice, _StopRequested):
            if not is_stopping:
                print("pagewire: stopping", file=sys.stderr, flush=True)
            is_stopping = True
            cluster.request_stop()
            continue
        progress.show(notice)
        match notice:
            case BecameReady():
                _say_ready(cluster, progress.seconds)
            case Ended(failure):
                progress.clear()
                if failure is not None and not is_stopping:
                    raise StartupError(failure)
                return 0


def _say_ready(cluster: LocalCluster, seconds: float) -> None:
    config = cluster.config
    facts = ReadyFacts(
        seconds=seconds,
        url=str(cluster.http_url),
        grpc_address=("https://" if config.ssl_certfile else "") + cluster.grpc_address,
        models=cluster.models,
        capacities=cluster.capacities,
        needs_key=bool(config.api_key or config.api_key_file),
        has_template=bool(config.chat_template),
        host=config.host,
    )
    print(ready_text(facts), flush=True)
    warning = open_warning(facts)
    if warning is not None:
        print(warning, file=sys.stderr, flush=True)
