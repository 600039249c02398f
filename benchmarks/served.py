"""Speed through the whole path: HTTP, frontend, scheduler, worker, as separate processes.

    python benchmarks/make_checkpoint.py --shape qwen2.5-0.5b
    python benchmarks/served.py checkpoints/qwen2.5-0.5b

Starts `pagewire serve`, loads it with `pagewire bench`, and reads from the scheduler's metrics
which share of
the time with a step under way was spent outside the model. Without a checkpoint: the built-in
model.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from parts.machine import describe, read_bandwidth

PORT, GRPC_PORT, METRICS_PORT = 18000, 18001, 18010
SCHEDULER_METRICS = f"http://127.0.0.1:{METRICS_PORT + 1}/metrics"


def start(checkpoint: Path | None, flags: list[str]) -> tuple["subprocess.Popen[str]", float]:
    """Start a deployment; return it and the seconds until it would answer."""
    command = [sys.executable, "-m", "pagewire", "serve"]
    command += [str(checkpoint)] if checkpoint else []
    command += ["--port", str(PORT), "--grpc-port", str(GRPC_PORT)]
    command += ["--metrics-port", str(METRICS_PORT), "--log-level", "warning", *flags]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    if "ready" not in line:
        raise SystemExit(f"serve did not start: {line}")
    return process, time.perf_counter() - began


def counters() -> dict[str, float]:
    """Return the scheduler's step counters."""
    text = urllib.request.urlopen(SCHEDULER_METRICS).read().decode()
    found = re.findall(r"^pagewire_(\w+)_total\{[^}]*\} (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found}


def bench(concurrency: int, num_prompts: int, input_len: int, output_len: int) -> dict[str, object]:
    """Run `pagewire bench` and return its report."""
    command = [sys.executable, "-m", "pagewire", "bench", "--json"]
    command += ["--base-url", f"http://127.0.0.1:{PORT}"]
    command += ["--num-prompts", str(num_prompts), "--max-concurrency", str(concurrency)]
    command += ["--input-len", str(input_len), "--output-len", str(output_len), "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    report: dict[str, object] = json.loads(done.stdout)
    return report


def milliseconds(spread: object, percentile: str) -> str:
    """Return one percentile of a duration."""
    assert isinstance(spread, dict)
    value = spread["percentiles"][percentile]
    return "-" if value is None else f"{value * 1000:.1f}"


def main() -> None:
    """Run all concurrencies and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("checkpoint", type=Path, nargs="?")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--prompts-each", type=int, default=3, help="requests per open connection")
    parser.add_argument("--input-len", type=int, default=128)
    parser.add_argument("--output-len", type=int, default=32)
    arguments, flags = parser.parse_known_args()
    print(describe())
    if arguments.checkpoint:
        weights = sum(file.stat().st_size for file in arguments.checkpoint.glob("*.safetensors"))
        limit = read_bandwidth(len(os.sched_getaffinity(0))) / weights
        print(f"read limit at batch 1: {limit:.1f} tokens/s")
    process, ready_seconds = start(arguments.checkpoint, flags)
    print(f"time to ready: {ready_seconds:.1f} s")
    print(f"{arguments.input_len} tokens in, {arguments.output_len} out")
    print(
        "| open requests | tokens/s | TTFT p50 ms | ITL p50 ms | ITL p99 ms | outside the model |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    try:
        bench(1, 2, arguments.input_len, arguments.output_len)
        for concurrency in arguments.concurrency:
            before = counters()
            report = bench(
                concurrency,
                concurrency * arguments.prompts_each,
                arguments.input_len,
                arguments.output_len,
            )
            spent = {name: value - before.get(name, 0.0) for name, value in counters().items()}
            outside = 1 - spent["step_model_seconds"] / spent["step_busy_seconds"]
            rate = report["output_tokens_per_second"]
            assert isinstance(rate, float)
            print(
                f"| {concurrency} | {rate:.1f} | {milliseconds(report['ttft'], 'p50')} "
                f"| {milliseconds(report['itl'], 'p50')} | {milliseconds(report['itl'], 'p99')} "
                f"| {outside:.1%} |"
            )
    finally:
        process.terminate()
        process.wait(20)


if __name__ == "__main__":
    main()
