"""Sends mixed requests to a cell that is traced, kills workers meanwhile, and says how much of the
time of each request its spans cover.

    cd tests && python -m support.traffic.traced_requests --requests 1000

Prompts are handed off from one worker to another. Exit status 1: a request without a trace, a trace
that does not hang together, or fewer than 99 % of them covered by at least 98 %.
"""

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint
from support.traffic.mixed_requests import ask_mixed, make_requests

COVERED: Final = 0.98
SHARE: Final = 0.99
TOUCH_NANOSECONDS: Final = 1000
"""Instants are rounded."""
SECONDS: Final = 60.0

ROOT: Final = "llm_request"
STAGES: Final = (
    *("grammar", "tokenize", "admit", "queue", "kv_load", "prefill", "first_token", "decode"),
    "deliver",
)
PARENTS: Final = {name: {ROOT} for name in STAGES} | {
    # A stage that took no time has no span.
    "prefill_chunk": {"prefill", ROOT},
    "kv_get": {"kv_load", ROOT},
    "kv_pull": {"kv_load", ROOT},
    "store_get": {"kv_get"},
    "paused": {"prefill", "decode", ROOT},
    "decode_run": {"decode", ROOT},
}
"""What each span may lie under."""


class Receiver(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps the spans of each trace."""

    def __init__(self) -> None:
        self.traces: dict[bytes, list[Any]] = defaultdict(list)

    def Export(self, request: Any, context: Any) -> Any:
        for group in request.resource_spans:
            for scope in group.scope_spans:
                for span in scope.spans:
                    self.traces[span.trace_id].append(span)
        return trace_service_pb2.ExportTraceServiceResponse()


def number_of(span: Any, name: str) -> int:
    """Return a whole attribute of a span; 0 without it."""
    found = {one.key: one.value for one in span.attributes}
    return int(found[name].int_value) if name in found else 0


def flag_of(span: Any, name: str) -> bool:
    """Return a truth value of a span; False without it."""
    found = {one.key: one.value for one in span.attributes}
    return bool(found[name].bool_value) if name in found else False


def text_of(span: Any, name: str) -> str:
    """Return a text of a span; "" without it."""
    found = {one.key: one.value for one in span.attributes}
    return str(found[name].string_value) if name in found else ""


def coverage(spans: list[Any]) -> float:
    """Return the share of a request's time that its stages cover.

    Raises:
        AssertionError: They do not hang together.
    """
    (root,) = [one for one in spans if one.name == ROOT]
    by_id = {one.span_id: one for one in spans}
    assert len(by_id) == len(spans)
    begin, end = root.start_time_unix_nano, root.end_time_unix_nano
    for one in spans:
        assert one is root or _parent_name(one, by_id) in PARENTS[one.name], one
        assert one.start_time_unix_nano >= begin - TOUCH_NANOSECONDS, one
        assert one.end_time_unix_nano <= end + TOUCH_NANOSECONDS, one
        assert all(link.span_id in by_id for link in one.links), one
    stages = [one for one in spans if one.name in STAGES]
    covered, now = 0, begin
    for one in sorted(stages, key=lambda stage: int(stage.start_time_unix_nano)):
        covered += max(0, one.end_time_unix_nano - max(now, one.start_time_unix_nano))
        now = max(now, one.end_time_unix_nano)
    return covered / max(1, end - begin)


def _parent_name(span: Any, by_id: dict[bytes, Any]) -> str:
    return str(by_id[span.parent_span_id].name) if span.parent_span_id in by_id else "lost"


class Kills:
    """Kills a worker whenever so many answers have come."""

    def __init__(self, cluster: Cluster, every: int, seed: int) -> None:
        self._cluster = cluster
        self._every = every
        self._dice = random.Random(seed)
        self._num_answers = 0
        self.num_kills = 0

    def note_answer(self) -> None:
        self._num_answers += 1
        pids = self._cluster.processes["worker"]
        if self._every and self._num_answers % self._every == 0 and pids:
            os.kill(self._dice.choice(pids), signal.SIGKILL)
            self.num_kills += 1


def run(given: argparse.Namespace) -> int:
    """Send the requests, print what came of them, and return the exit status."""
    receiver, server = Receiver(), grpc.server(ThreadPoolExecutor(4))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(receiver, server)
    endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    with tempfile.TemporaryDirectory() as folder:
        cluster = start_cluster(
            make_checkpoint(Path(folder) / "model"),
            prefill_workers=2,
            decode_workers=2,
            handoff="always",
            otlp_traces_endpoint=endpoint,
        )
        try:
            requests = make_requests(given.requests, given.seed)
            kills = Kills(cluster, given.kill_every, given.seed)
            asked = ask_mixed(
                cluster, requests, most_at_once=given.at_once, on_answer=kills.note_answer
            )
            asyncio.run(asked)
            end = time.monotonic() + SECONDS
            while len(receiver.traces) < len(requests) and time.monotonic() < end:
                time.sleep(0.1)
        finally:
            cluster.local.stop()
            server.stop(None)
    return report(receiver, len(requests), kills.num_kills)


def report(receiver: Receiver, num_requests: int, num_kills: int) -> int:
    """Print what the traces show, and return the exit status."""
    traces = list(receiver.traces.values())
    shares = sorted(map(coverage, traces))
    spans = [span for trace in traces for span in trace]
    handed = sum(any(flag_of(one, "pagewire.is_handed_off") for one in trace) for trace in traces)
    lost = sum(any(number_of(one, "pagewire.recoveries") for one in trace) for trace in traces)
    below = Counter(one.name for one in spans if one.name not in (ROOT, *STAGES))
    workers = {text_of(one, "pagewire.worker") for one in spans} - {""}
    num_covered = sum(share >= COVERED for share in shares)
    print(
        f"{num_requests} requests, {len(traces)} traces, {len(spans)} spans; {handed} handed off,"
        f" {lost} went on after one of {num_kills} kills; {num_covered} covered by"
        f" {COVERED:.0%}, least {shares[0] if shares else 0:.4f}"
    )
    shown = ", ".join(f"{count} {name}" for name, count in sorted(below.items()))
    print(f"below the stages: {shown}; {len(workers)} workers")
    is_good = len(traces) == num_requests and num_covered >= SHARE * num_requests
    # Each hand-off has a pull; a request has chunks of its prompt and a run of tokens.
    is_whole = all(below[name] for name in ("prefill_chunk", "kv_pull", "decode_run"))
    return 0 if is_good and handed and is_whole and len(workers) > 1 else 1


def main() -> int:
    """Run, and return the exit status."""
    parser = argparse.ArgumentParser(description="How much of the time spans cover")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--kill-every", type=int, default=100, help="answers; 0: never")
    parser.add_argument("--seed", type=int, default=1)
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
