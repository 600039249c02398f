"""`pagewire serve`: runs a LocalCluster, and prints addresses and an example once it is ready."""

import json
import queue
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

from pagewire.cli.config import describe
from pagewire.cli.progress import StartProgress
from pagewire.cli.settings import add_model, load, make_parser
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
    if loaded.config.log_level == "debug":
        print(describe(loaded), file=sys.stderr)
    # SimpleQueue.put may be called by a signal handler that interrupted a put.
    notices: queue.SimpleQueue[Notice | _StopRequested] = queue.SimpleQueue()

    def request_stop(number: int, frame: FrameType | None) -> None:
        notices.put(_StopRequested())

    cluster = LocalCluster(loaded.config, observer=notices.put)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, request_stop)
    cluster.start()
    try:
        return _follow(cluster, notices)
    finally:
        cluster.stop()


def _follow(cluster: LocalCluster, notices: "queue.SimpleQueue[Notice | _StopRequested]") -> int:
    progress = StartProgress()
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
                print(ready_text(cluster, progress.seconds), flush=True)
            case Ended(failure):
                if failure is not None and not is_stopping:
                    raise StartupError(failure)
                return 0


def ready_text(cluster: LocalCluster, seconds: float) -> str:
    """Return the ready line and a command that queries the first model."""
    names = ", ".join(model.name for model in cluster.models)
    return (
        f"Pagewire is ready after {seconds:.1f} s: {cluster.http_url} "
        f"(gRPC {cluster.grpc_address}), serving {names}. Ask it:\n  {curl_command(cluster)}"
    )


def curl_command(cluster: LocalCluster) -> str:
    """Return a shell command that gets an answer from the first model."""
    model = cluster.models[0]
    name, body = model.architecture, dict[str, Any]()
    if name.endswith("ForSequenceClassification"):
        path, body = "classify", {"model": model.name, "input": ["Tell me a story."]}
    elif name.endswith("Model") and not name.endswith("LMHeadModel"):
        path, body = "v1/embeddings", {"model": model.name, "input": ["Tell me a story."]}
    elif model.has_chat_template:
        path = "v1/chat/completions"
        body = {
            "model": model.name,
            "messages": [{"role": "user", "content": "Tell me a story."}],
            "max_tokens": 64,
        }
    else:
        path = "v1/completions"
        body = {"model": model.name, "prompt": "Once upon a time", "max_tokens": 64}
    data = json.dumps(body).replace("'", "'\\''")
    return f"curl {cluster.http_url}/{path} -H 'content-type: application/json' -d '{data}'"
