"""Time to first token over HTTP at an idle server, by the length of the prompt.

    python benchmarks/gpu/ttft.py --shapes qwen3-8b

Starts `pagewire serve` with random weights and asks /v1/completions for one stream after the other,
over one connection, with prompts of token ids that nothing has computed before. From the request's
first byte to the first event with a token. The limit is the prompt's operations at the rate of a
matrix product, or the weights once at the rate of a copy.
"""

import argparse
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import command
from bounds import prefill_seconds
from limits import Limits, measure_limits
from replicas import base_settings, unknown_settings
from report import Report, Row
from shapes import Shape, write_checkpoint

from pagewire.config import ServeConfig

GOAL_ROWS = {("qwen3-8b", 128): "7", ("qwen3-8b", 2048): "8"}
NUM_WARM_UPS = 2
NUM_REQUESTS = {128: 60, 1024: 40, 2048: 30, 8192: 15}
TOY_REQUESTS = {8: 2, 24: 2}
NUM_TOKENS = 2


@contextmanager
def server(folder: Path, arguments: argparse.Namespace) -> Iterator[http.client.HTTPConnection]:
    """Give a connection to a deployment of the model in `folder`, and end it."""
    settings = base_settings(
        port=0,
        grpc_port=0,
        max_num_batched_tokens=arguments.max_num_batched_tokens,
        max_model_len=128 if command.IS_TOY else 16384,
        log_level="warning",
    )
    if arguments.enforce_eager:
        settings["enforce_eager"] = True
    if missing := unknown_settings(ServeConfig, settings):
        raise SystemExit(f"this version has no {', '.join(missing)}")
    if command.IS_TOY:
        settings["kv_cache_memory"] = 1024**2
    process = subprocess.Popen(
        [sys.executable, "-m", "pagewire", "serve", str(folder), *_flags(settings)],
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    try:
        yield http.client.HTTPConnection("127.0.0.1", _port(process), timeout=300)
    finally:
        process.terminate()
        process.wait(30)


def _flags(settings: dict[str, object]) -> list[str]:
    flags = []
    for name, value in settings.items():
        flag = "--" + name.replace("_", "-")
        flags += [flag] if value is True else [flag, str(value)]
    return flags


def _port(process: "subprocess.Popen[str]") -> int:
    """Return the port that a server names once it is ready."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if "ready" not in line:
        raise SystemExit(f"serve did not start: {line}")
    return int(line.split("127.0.0.1:", 1)[1].split()[0].rstrip("/,;)"))


def first_token_seconds(
    connection: http.client.HTTPConnection, model: str, prompt: list[int]
) -> float:
    """Return the time from a request to the first event of its stream that has a choice."""
    body = json.dumps(
        {
            "model": model,
            "prompt": prompt,
            "max_tokens": NUM_TOKENS,
            "temperature": 0.6,
            "ignore_eos": True,
            "stream": True,
        }
    )
    began = time.perf_counter()
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    found: float | None = None
    while line := response.readline():
        if found is None and line.startswith(b"data: ") and b'"choices"' in line:
            found = time.perf_counter() - began
    if response.status != 200 or found is None:
        raise SystemExit(f"no tokens came: HTTP {response.status}")
    return found


def row(shape: Shape, length: int, seconds: list[float], limits: Limits) -> Row:
    """Return a line of the table."""
    floor = prefill_seconds(shape, length, limits, command.dtype().itemsize)
    ordered = sorted(seconds)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * len(ordered)))]
    return {
        "row": GOAL_ROWS.get((shape.name, length)),
        "prompt": length,
        "requests": len(seconds),
        "p50 ms": statistics.median(seconds) * 1e3,
        "p95 ms": p95 * 1e3,
        "limit ms": floor * 1e3,
        "limit of p95": floor / p95,
    }


def measure(shape: Shape, arguments: argparse.Namespace, limits: Limits) -> list[Row]:
    """Return the rows of one shape."""
    dice = random.Random(0)

    def prompt(length: int) -> list[int]:
        return [dice.randrange(shape.vocab - 2) for _ in range(length)]

    rows = []
    with tempfile.TemporaryDirectory() as parent:
        folder = write_checkpoint(shape, Path(parent))
        with server(folder, arguments) as connection:
            for length, count in (TOY_REQUESTS if command.IS_TOY else NUM_REQUESTS).items():
                seconds = [
                    first_token_seconds(connection, shape.name, prompt(length))
                    for _ in range(NUM_WARM_UPS + count)
                ]
                rows.append(row(shape, length, seconds[NUM_WARM_UPS:], limits))
    return rows


def main() -> None:
    """Print a table per shape."""
    parser = command.make_parser(__doc__)
    command.add_shapes(parser, ["qwen3-8b", "qwen3-0.6b"])
    parser.add_argument(
        "--max-num-batched-tokens", type=int, default=32 if command.IS_TOY else 8192
    )
    parser.add_argument("--enforce-eager", action="store_true", help="without CUDA graphs")
    arguments = parser.parse_args()
    report = Report(arguments, command.device())
    limits = command.in_fresh_process(measure_limits, command.device(), command.dtype())
    for shape in command.shapes_of(arguments):
        rows = measure(shape, arguments, limits)
        report.add(f"{shape.name}: time to first token, idle server, HTTP", rows)


if __name__ == "__main__":
    main()
