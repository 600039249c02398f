"""Large bodies and long texts beside other streams: how long does a frontend hold them up, and what
memory does it keep?

    python benchmarks/make_checkpoint.py --shape tiny-long
    python benchmarks/long_texts.py checkpoints/tiny-long
    PAGEWIRE_MAX_BODY_SIZE=33554432 python benchmarks/long_texts.py checkpoints/tiny-long

Streams go on all the time; a process of its own sends the texts. For each case it prints the
answers, the longest pause of the streams beside that of the same time without, and the memory that
the frontend holds afterwards beyond what it held before.
"""

import argparse
import asyncio
import json
import random
import time
import urllib.error
import urllib.request
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import grpc.aio
from one_document import ADDRESS, VOCABULARY, Stream, follow, make_request
from parts.machine import describe
from served import PORT, start

from pagewire_protos.frontend.v1 import inference_pb2_grpc
from pagewire_shared.rpc.options import control_channel_options

SETTLE_SECONDS = 5.0
WORDS = ("time", "upon", "there", "was", "a", "the", "once", "river", "stone", "and")
# Of characters, and how many at once. A text of 1.2 million may just fit the context of 131,072.
# The colons of a text are the dearest for who counts names, and ids the dearest objects.
CASES = {
    "a body of 8 MB": ("words", 8_000_000, 1),
    "a body of 32 MB": ("words", 32_000_000, 1),
    "a body of 32 MB, all colons": ("colons", 32_000_000, 1),
    "a body of 500,000 ids": ("ids", 500_000, 1),
    "40 texts of 1.2 MB": ("words", 1_200_000, 40),
    "40 texts of 100 KB": ("words", 100_000, 40),
}


def post(body: bytes) -> str:
    """Send a completion; return its status."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/v1/completions", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            answer.read()
            return str(answer.status)
    except urllib.error.HTTPError as error:
        return str(error.code)
    except OSError as error:
        # A server that answers before it has read a body ends the connection.
        return type(error).__name__


def make_prompt(kind: str, size: int) -> str | list[int]:
    """Return a prompt of so many characters or ids."""
    if kind == "ids":
        return [100] * size
    if kind == "colons":
        return '":' * (size // 3)
    return " ".join(random.Random(size).choices(WORDS, k=size // 5))[:size]


def attack(model: str, kind: str, size: int, count: int) -> Counter[str]:
    """Send prompts at once; return how they were answered."""
    prompt = make_prompt(kind, size)
    body = json.dumps({"model": model, "prompt": prompt, "max_tokens": 2}).encode()
    with ThreadPoolExecutor(count) as threads:
        return Counter(threads.map(post, [body] * count))


def frontend_pid(parent: int) -> int:
    """Return the process id of the frontend below `parent`."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            stat = (path / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if b"pagewire_frontend" in words and int(stat[1]) == parent:
            return int(path.name)
    raise SystemExit("there is no frontend")


def resident_bytes(pid: int) -> int:
    """Return the memory of a process that is its own."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("RssAnon")).split()[1])


async def run(model: str, arguments: argparse.Namespace, pid: int) -> None:
    """Run all cases beside the streams."""
    dice = random.Random(2)
    streams = [Stream() for _ in range(arguments.streams)]
    async with grpc.aio.insecure_channel(ADDRESS, options=control_channel_options()) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        requests = [make_request(model, dice.choices(VOCABULARY, k=20), 120_000) for _ in streams]
        others = [
            asyncio.create_task(follow(stub, request, one))
            for request, one in zip(requests, streams, strict=True)
        ]
        await asyncio.gather(*(one.is_begun.wait() for one in streams))
        print("| case | answers | s | longest pause ms | without ms | memory kept MB |")
        print("| --- | --- | --- | --- | --- | --- |")
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            await asyncio.wrap_future(pool.submit(attack, model, "words", 300_000, 1))
            cases = {name: CASES[name] for name in CASES if arguments.only in name}
            for name, case in cases.items():
                before = resident_bytes(pid)
                began = time.perf_counter()
                answers = await asyncio.wrap_future(pool.submit(attack, model, *case))
                ended = time.perf_counter()
                await asyncio.sleep(max(SETTLE_SECONDS, ended - began))
                calm = (ended + 0.5, time.perf_counter())
                kept = resident_bytes(pid) - before
                pause, without = (
                    1e3 * max(max(one.pauses(*span)) for one in streams)
                    for span in ((began, ended), calm)
                )
                told = ", ".join(f"{number} x {status}" for status, number in answers.items())
                print(
                    f"| {name} | {told} | {ended - began:.1f} | {pause:.0f} | {without:.0f}"
                    f" | {kept / 1e6:.0f} |",
                    flush=True,
                )
        for task in others:
            task.cancel()
        await asyncio.wait(others)


def main() -> None:
    """Start a deployment, run, and stop it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--only", default="", help="part of the names of the cases to run")
    arguments, flags = parser.parse_known_args()
    print(describe())
    process, _ = start(arguments.checkpoint, ["--max-num-seqs", "64", *flags])
    try:
        pid = frontend_pid(process.pid)
        asyncio.run(run(arguments.checkpoint.name, arguments, pid))
    finally:
        process.terminate()
        process.wait(20)


if __name__ == "__main__":
    main()
