"""What a real scheduler process takes: gRPC, protobuf, outboxes and metrics included.

    python benchmarks/scheduler_process.py

Starts `python -m pagewire_scheduler` and, in this process, workers that answer every plan after a
pause and frontends that read every token. Prints the scheduler's CPU time per step and per token,
as the system counts it. Results are in docs/performance.md.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import grpc.aio
import numpy as np
import uvloop

from pagewire_protos.common.v1 import layout_pb2
from pagewire_protos.scheduler.v1 import (
    frontend_attach_pb2,
    frontend_attach_pb2_grpc,
    worker_attach_pb2,
    worker_attach_pb2_grpc,
)
from pagewire_shared.convert import protocol_range
from pagewire_shared.identity.ids import mint_id
from pagewire_shared.kv.arrays import pack_u32
from pagewire_shared.rpc.options import control_channel_options

MODEL, TOKENIZER = "bench", b"t" * 32
CASES = ((1, 256, 1), (8, 256, 1), (8, 256, 4), (64, 16, 1))
PAUSE_SECONDS = 0.02
"""Of a step in a worker, times the number of workers beyond four, so that the cores keep up."""


class Worker:
    """Answers each plan after a pause: a token for each slot that samples."""

    def __init__(self, channel: grpc.aio.Channel, num_seqs: int, pause: float) -> None:
        self._stub = worker_attach_pb2_grpc.WorkerAttachServiceStub(channel)
        self._num_seqs, self._pause = num_seqs, pause
        self.num_steps = self.num_tokens = 0

    def _hello(self) -> worker_attach_pb2.WorkerHello:
        group = layout_pb2.CacheGroup(
            kind=layout_pb2.CACHE_KIND_FULL,
            num_layers=2,
            block_size=16,
            bytes_per_block=64,
            num_shards=1,
            dtype="float32",
        )
        return worker_attach_pb2.WorkerHello(
            protocol=protocol_range(),
            worker_id=mint_id(),
            incarnation=1,
            model=MODEL,
            tokenizer_fingerprint=TOKENIZER,
            layout=layout_pb2.KvLayout(model_fingerprint=b"m" * 32, groups=[group]),
            capacity=worker_attach_pb2.WorkerCapacity(
                num_blocks=100_000,
                max_num_seqs=self._num_seqs,
                max_num_batched_tokens=8_192,
                max_model_len=100_000,
                steps_in_flight=2,
                vocab_size=32_000,
            ),
        )

    async def run(self) -> None:
        """Attach and work until cancelled."""
        call = self._stub.AttachWorker()
        await call.write(worker_attach_pb2.AttachWorkerRequest(hello=self._hello()))
        async for response in call:
            if response.WhichOneof("message") != "plan":
                continue
            plan = response.plan
            await asyncio.sleep(self._pause)
            slots = np.frombuffer(plan.slots, "<u4")
            sampled = slots[np.frombuffer(plan.samples, "u1") != 0]
            ones = pack_u32(np.ones_like(sampled))
            result = worker_attach_pb2.StepResult(
                generation=plan.generation,
                incarnation=plan.incarnation,
                step_id=plan.step_id,
                slots=pack_u32(sampled),
                counts=ones,
                token_ids=ones,
                model_time_us=int(1e6 * self._pause),
            )
            await call.write(worker_attach_pb2.AttachWorkerRequest(result=result))
            self.num_steps += 1
            self.num_tokens += len(sampled)


async def run_frontend(channel: grpc.aio.Channel, num_requests: int) -> None:
    """Submit requests that do not end, and read what comes."""
    call = frontend_attach_pb2_grpc.FrontendAttachServiceStub(channel).AttachFrontend()
    model = frontend_attach_pb2.FrontendModel(name=MODEL, tokenizer_fingerprint=TOKENIZER)
    hello = frontend_attach_pb2.FrontendHello(
        protocol=protocol_range(), frontend_id=mint_id(), models=[model]
    )
    await call.write(frontend_attach_pb2.AttachFrontendRequest(hello=hello))
    for handle in range(1, num_requests + 1):
        prompt = np.random.default_rng(handle).integers(0, 32_000, 100)
        submit = frontend_attach_pb2.Submit(
            request_id=mint_id(),
            handle=handle,
            model=MODEL,
            prompt_token_ids=pack_u32(prompt),
            generate=frontend_attach_pb2.GenerateKind(),
        )
        submit.sampling.max_tokens = 50_000
        submit.sampling.seed = handle
        await call.write(frontend_attach_pb2.AttachFrontendRequest(submit=submit))
    async for response in call:
        if response.WhichOneof("message") == "rejected":
            raise SystemExit(f"a request was refused: {response.rejected}")


def start_scheduler(address: str) -> "subprocess.Popen[str]":
    """Start the process and wait until it is ready."""
    command = [sys.executable, "-P", "-m", "pagewire_scheduler", "--listen", address]
    limits = ["--max-num-waiting", "100000", "--max-request-bytes", str(2**40)]
    process = subprocess.Popen(
        [*command, "--exit-with-parent", "--log-level", "error", *limits],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["pagewire"] == "ready":
            return process
    raise SystemExit("the scheduler ended")


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(
    process: "subprocess.Popen[str]", address: str, case: tuple[int, int, int], seconds: float
) -> tuple[float, float, float]:
    """Return the scheduler's CPU milliseconds per step, microseconds per token, and share of a
    core, for (workers, sequences of each, frontends)."""
    num_workers, num_seqs, num_frontends = case
    pause = PAUSE_SECONDS * max(1.0, num_workers / 4)
    channels = [
        grpc.aio.insecure_channel(address, options=control_channel_options())
        for _ in range(num_workers + num_frontends)
    ]
    workers = [Worker(channel, num_seqs, pause) for channel in channels[:num_workers]]
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    await asyncio.sleep(1.0)
    share = num_workers * num_seqs // num_frontends
    tasks += [asyncio.create_task(run_frontend(one, share)) for one in channels[num_workers:]]
    wanted = 3 * num_workers * num_seqs
    while sum(worker.num_tokens for worker in workers) < wanted:
        await asyncio.sleep(0.1)
        for task in tasks:
            if task.done():
                task.result()
    await asyncio.sleep(1.0)
    steps = sum(worker.num_steps for worker in workers)
    tokens = sum(worker.num_tokens for worker in workers)
    before, began = cpu_seconds(process.pid), time.monotonic()
    await asyncio.sleep(seconds)
    used, passed = cpu_seconds(process.pid) - before, time.monotonic() - began
    steps = sum(worker.num_steps for worker in workers) - steps
    tokens = sum(worker.num_tokens for worker in workers) - tokens
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for channel in channels:
        await channel.close()
    return 1e3 * used / steps, 1e6 * used / tokens, used / passed


def main() -> None:
    """Read the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0)
    arguments = parser.parse_args()
    print("workers x sequences, frontends | CPU per step, ms | per token, us | share of a core")
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            address = f"unix:{folder}/scheduler.sock"
            process = start_scheduler(address)
            try:
                per_step, per_token, share = uvloop.run(
                    measure(process, address, case, arguments.seconds)
                )
            finally:
                process.kill()
                process.wait()
        workers, seqs, frontends = case
        print(
            f"{workers:3d} x {seqs:3d}, {frontends} | {per_step:6.2f} | {per_token:5.1f} "
            f"| {share:4.0%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
