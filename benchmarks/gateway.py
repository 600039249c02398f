"""What a token costs at the edge: CPU of a frontend process per token, for SSE and gRPC streams,
beside the least that a Python server can do for an SSE stream, in one run.

    python benchmarks/gateway.py [--streams 256] [--tokens 400] [--step-ms 10]

A request costs something, too, so all are measured twice, once with a quarter of the tokens: what
the others take longer is what tokens cost, the rest is the request. The cell is fake
(`fake_cell.py`: one token per stream and step, no model); frontend, sockets, gRPC and readers are
real. `--slow N` adds N readers that take one byte a second and shows what the others notice.
`--traced N` compares instead, N times a round, a frontend that sends traces of `--ratio` of its
requests with one that sends none, at the same time. `--kept N` compares streams that outlive their
connection with those that do not.
Results are in docs/performance.md.
"""

import argparse
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import grpc
from parts.pairs import mean_with_bound
from parts.stream_readers import Reader, post, read_all
from parts.trace_sink import trace_sink

from pagewire.models import BUILTIN_FOLDER, BUILTIN_NAME
from pagewire_protos.common.v1 import sampling_pb2
from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_protos.frontend.v1 import inference_pb2_grpc

HERE = Path(__file__).parent
NAME = BUILTIN_NAME
START_SECONDS = 120
KEPT = "x-pagewire-on-disconnect: continue"
PATH = "/v1/chat/completions"


class Edge(NamedTuple):
    """A frontend with its ports, and its fake cell."""

    process: "subprocess.Popen[bytes]"
    http: int
    grpc_port: int
    cell: "subprocess.Popen[bytes]"


@dataclass(frozen=True)
class Measured:
    """One run: CPU seconds of the server, wall seconds, tokens, gaps between reads in seconds."""

    cpu: float
    wall: float
    tokens: int
    gaps: list[float]

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.gaps, n=100)[98] * 1000 if len(self.gaps) > 100 else 0.0


@dataclass(frozen=True)
class Cost:
    """CPU in microseconds, apart for tokens and requests; both runs have the same requests."""

    short: Measured
    long: Measured
    num_requests: int

    @property
    def together(self) -> float:
        """Everything, divided by the tokens of the long run."""
        return self.long.cpu / self.long.tokens * 1e6

    @property
    def per_token(self) -> float:
        more = self.long.tokens - self.short.tokens
        return (self.long.cpu - self.short.cpu) / more * 1e6

    @property
    def per_request(self) -> float:
        return self.long.cpu / self.num_requests * 1e6 - self.per_token * (
            self.long.tokens / self.num_requests
        )

    def row(self, name: str, bare: "Cost | None") -> str:
        ratios = "1 | 1"
        if bare:
            together = times(self.together, bare.together)
            ratios = f"{times(self.per_token, bare.per_token)} | {together}"
        return (
            f"| {name} | {self.per_token:.1f} | {self.per_request:.0f} | {self.together:.1f} "
            f"| {ratios} | {self.long.tokens / self.long.wall:,.0f} | {self.long.p99:.1f} |"
        )


def times(own: float, other: float) -> str:
    return f"{own / other:.2f}" if other > 0 else "too short"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--step-ms", type=float, default=10.0)
    parser.add_argument("--slow", type=int, default=0, help="readers that take a byte a second")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--traced", type=int, default=0, help="pairs with and without traces")
    parser.add_argument("--rounds", type=int, default=10, help="of those, with new processes")
    parser.add_argument("--ratio", type=float, default=0.1, help="share of requests with a trace")
    parser.add_argument("--kept", type=int, default=0, help="pairs of streams, kept and not")
    arguments = parser.parse_args()
    if arguments.kept:
        compare_kept(arguments)
        return
    if arguments.traced:
        compare_traced(arguments)
        return
    print("| CPU in us | a token | a request | together, per token | ratios to bare | |", end="")
    print(" tokens per s | p99 of gaps, ms |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for _ in range(arguments.repeats):
        port = free_port()
        with running(bare_command(port, arguments.step_ms)) as process:
            wait_port(port)
            bare = cost(arguments, partial(measure_sse, arguments, process.pid, port, 0))
        print(bare.row("bare SSE", None), flush=True)
        with frontend(arguments.step_ms) as (process, http, grpc_port, _):
            sse = cost(arguments, partial(measure_sse, arguments, process.pid, http, 0))
            print(sse.row("gateway, SSE", bare), flush=True)
            if arguments.slow:
                slow = measure_sse(arguments, process.pid, http, arguments.slow, arguments.tokens)
                print(f"| beside {arguments.slow} slow | | | | | | | {slow.p99:.1f} |", flush=True)
            typed = cost(arguments, partial(measure_grpc, arguments, process.pid, grpc_port))
            print(typed.row("gateway, gRPC", bare), flush=True)


def compare_traced(arguments: argparse.Namespace) -> None:
    """Print the ratios of CPU with traces to that without, and their 95 % bounds.

    Both frontends of a pair work at the same time, so that whatever else runs slows both. Two
    processes differ by themselves, so that new ones are started for each round.
    """
    edges, cells, num_batches = [], [], 0
    for number in range(arguments.rounds):
        edge, cell, batches = traced_round(arguments)
        edges.append(edge)
        cells.append(cell)
        num_batches += batches
        print(f"  round {number}: frontend {edge:.4f}, with its scheduler {cell:.4f}", flush=True)
    for name, ratios in (("a frontend", edges), ("it and its scheduler", cells)):
        mean, bound = mean_with_bound(ratios)
        print(f"{arguments.ratio:.0%} traced: CPU of {name} {mean:.4f} +- {bound:.4f}")
    print(
        f"of that without; {len(edges)} rounds of {arguments.traced} pairs of {arguments.streams}"
        f" streams with {arguments.tokens} tokens, {num_batches} batches sent"
    )


def traced_round(arguments: argparse.Namespace) -> tuple[float, float, int]:
    """Return the ratios of CPU of two frontends, alone and with their schedulers, and how many
    batches were sent."""
    with (
        trace_sink() as (endpoint, num_sent),
        frontend(arguments.step_ms) as plain,
        frontend(
            arguments.step_ms,
            *("--otlp-traces-endpoint", endpoint, "--trace-ratio", str(arguments.ratio)),
        ) as traced,
    ):
        both = (traced, plain)
        # What is done for the first time is not measured.
        read_streams(arguments, [edge.http for edge in both])
        before = [(cpu_seconds(edge.process.pid), cpu_seconds(edge.cell.pid)) for edge in both]
        for _ in range(arguments.traced):
            read_streams(arguments, [edge.http for edge in both])
        spent = [
            (cpu_seconds(edge.process.pid) - own, cpu_seconds(edge.cell.pid) - other)
            for edge, (own, other) in zip(both, before, strict=True)
        ]
        return spent[0][0] / spent[1][0], sum(spent[0]) / sum(spent[1]), num_sent()


def read_streams(arguments: argparse.Namespace, ports: list[int]) -> None:
    """Read so many streams from each of the ports, all at once."""
    readers = [
        post(("127.0.0.1", port), PATH, chat_body(arguments.tokens))
        for _ in range(arguments.streams)
        for port in ports
    ]
    read_all(readers, 120)
    assert all(reader.is_complete for reader in readers)


def compare_kept(arguments: argparse.Namespace) -> None:
    """Print the ratios of CPU with kept streams to that without, and their 95 % bounds."""
    tokens, requests = [], []
    with frontend(arguments.step_ms, "--stream-journal-bytes", "1GiB") as (process, http, _, _):
        for number in range(-1, arguments.kept):
            found = {}
            for header in ("", KEPT) if number % 2 else (KEPT, ""):
                measure = partial(measure_sse, arguments, process.pid, http, 0, header=header)
                found[header] = cost(arguments, measure)
            # What is done for the first time is not measured.
            if number >= 0:
                tokens.append(found[KEPT].per_token / found[""].per_token)
                requests.append(found[KEPT].per_request / found[""].per_request)
    for name, ratios in (("token", tokens), ("request", requests)):
        mean, bound = mean_with_bound(ratios)
        print(f"kept streams: CPU of a {name} {mean:.3f} +- {bound:.3f} of that of others")


def cost(arguments: argparse.Namespace, measure: Callable[[int], Measured]) -> Cost:
    # What is done for the first time is not measured.
    measure(4)
    short = measure(max(1, arguments.tokens // 4))
    return Cost(short, measure(arguments.tokens), arguments.streams)


def bare_command(port: int, step_ms: float) -> list[str]:
    command = [sys.executable, str(HERE / "parts" / "bare_sse.py"), "--port", str(port)]
    return [*command, "--step-ms", str(step_ms)]


@contextlib.contextmanager
def frontend(step_ms: float, *flags: str) -> Iterator[Edge]:
    """Run a fake cell and a frontend."""
    folder = BUILTIN_FOLDER
    with tempfile.TemporaryDirectory() as place:
        address = f"unix:{place}/cell.sock"
        model = f"{NAME}={folder}"
        http, grpc_port = free_port(), free_port()
        cell = [sys.executable, str(HERE / "parts" / "fake_cell.py"), "--model", model]
        edge = [sys.executable, "-m", "pagewire_frontend", "--scheduler", address]
        edge += ["--model", model, "--port", str(http), "--grpc-port", str(grpc_port)]
        # A fake cell says nothing while there are no requests.
        edge += ["--log-level", "warning", "--silence-seconds", "600", *flags]
        with (
            running([*cell, "--listen", address, "--step-ms", str(step_ms)]) as scheduler,
            running(edge) as process,
        ):
            wait_port(http)
            wait_port(grpc_port)
            wait_ready(http)
            yield Edge(process, http, grpc_port, scheduler)


def measure_sse(
    arguments: argparse.Namespace,
    pid: int,
    port: int,
    num_slow: int,
    num_tokens: int,
    header: str = "",
) -> Measured:
    address = ("127.0.0.1", port)
    body = chat_body(num_tokens)
    slow = [post(address, PATH, body, is_slow=True) for _ in range(num_slow)]
    before, began = cpu_seconds(pid), time.monotonic()
    fast = [post(address, PATH, body, header=header) for _ in range(arguments.streams)]
    read_all([*fast, *slow], 120)
    wall = time.monotonic() - began
    cpu = cpu_seconds(pid) - before
    for reader in slow:
        reader.connection.close()
    incomplete = sum(not reader.is_complete for reader in fast)
    assert not incomplete, f"{incomplete} streams are not complete"
    return Measured(cpu, wall, len(fast) * num_tokens, gaps_of(fast))


def chat_body(num_tokens: int) -> bytes:
    """Return the body of a request for a stream."""
    return json.dumps(
        {
            "model": NAME,
            "messages": [{"role": "user", "content": "Tell me a story."}],
            "max_tokens": num_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
        }
    ).encode()


def gaps_of(readers: list[Reader]) -> list[float]:
    """Return the gaps between the reads of all streams, without the first, which begins them."""
    return [
        later - earlier
        for reader in readers
        for earlier, later in zip(reader.arrived_at[1:], reader.arrived_at[2:], strict=False)
    ]


def measure_grpc(arguments: argparse.Namespace, pid: int, port: int, num_tokens: int) -> Measured:
    request = pb.ChatRequest(
        model=NAME,
        messages=[pb.ChatMessage(role=pb.CHAT_ROLE_USER, content="Tell me a story.")],
        options=pb.GenerationOptions(
            sampling=sampling_pb2.SamplingParams(
                max_tokens=num_tokens, temperature=0, ignore_eos=True
            )
        ),
    )
    lock, tokens, gaps = threading.Lock(), [0], []

    def read(stub: inference_pb2_grpc.InferenceServiceStub) -> None:
        num, own, last = 0, [], None
        for message in stub.Chat(request):
            if message.HasField("delta"):
                now = time.monotonic()
                num += len(message.delta.token_ids)
                if last is not None:
                    own.append(now - last)
                last = now
        with lock:
            tokens[0] += num
            gaps.extend(own)

    with contextlib.ExitStack() as stack:
        channels = [
            stack.enter_context(
                grpc.insecure_channel(
                    f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)]
                )
            )
            for _ in range(8)
        ]
        stubs = [inference_pb2_grpc.InferenceServiceStub(channel) for channel in channels]
        before, began = cpu_seconds(pid), time.monotonic()
        with ThreadPoolExecutor(arguments.streams) as pool:
            tasks = [
                pool.submit(read, stubs[index % len(stubs)]) for index in range(arguments.streams)
            ]
            for task in tasks:
                task.result()
        wall = time.monotonic() - began
        cpu = cpu_seconds(pid) - before
    assert tokens[0] == arguments.streams * num_tokens, tokens
    return Measured(cpu, wall, tokens[0], gaps)


@contextlib.contextmanager
def running(command: list[str]) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(command)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process, all its threads together."""
    # Linux makes the number of a process's clock of its id, as clock_getcpuclockid() does.
    return time.clock_gettime((~pid << 3) | 2)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_port(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        assert time.monotonic() < deadline, f"nothing listens on {port}"
        time.sleep(0.05)


def wait_ready(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        with socket.create_connection(("127.0.0.1", port)) as probe:
            probe.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            if b" 200 " in probe.recv(64):
                return
        assert time.monotonic() < deadline, "not ready"
        time.sleep(0.05)


if __name__ == "__main__":
    main()
