"""Throughput under 1, 2, 4, ... 1000 adapters, and what a cold adapter costs the first token.

    python benchmarks/make_checkpoint.py --shape qwen2.5-0.5b
    python benchmarks/cpu/many_adapters.py checkpoints/qwen2.5-0.5b

Starts `pagewire serve` with fixed room for adapters: some in slots, packed for the kernels; more in
the worker's memory as they are in their files; all of them on disk, in the frontend's store. Then
as many clients as there are sequences ask under the first N adapters, the k-th of them 1/k times as
often as the first (Zipf). Every prompt is new, so that no prefix is cached.

Each point is measured in turn with the one before it, and the pairs are compared, so that what else
the machine does meets both.

The first token is timed for single requests: an adapter in a slot, one in the worker's memory, one
that the worker has never seen, whose file is in the page cache.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import torch
from safetensors.torch import save_file

from pagewire_worker.adapters.targets import AdapterTargets
from pagewire_worker.models.registry import read_plan

sys.path.append(str(Path(__file__).resolve().parents[1]))
from parts.machine import describe

PORT, GRPC_PORT = 18040, 18041
SECONDS = 300.0
NUM_TIMED = 24
PROMPT_TOKENS = 32


def write_adapters(model: Path, root: Path, count: int, rank: int, targets: list[str]) -> int:
    """Write random adapters into folders a0, a1, ...; return the bytes of one."""
    parts = [
        (name, linear.spec.num_inputs, size)
        for linear in AdapterTargets(read_plan(model)).linears
        for name, size in linear.spec.parts
        if name.rpartition(".")[2] in targets
    ]
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": targets}
    for number in range(count):
        generator = torch.Generator().manual_seed(number)
        tensors = {}
        for name, num_inputs, size in parts:
            for end, shape in (("A", (rank, num_inputs)), ("B", (size, rank))):
                values = torch.randn(shape, generator=generator, dtype=torch.float32) * 0.01
                tensors[f"base_model.model.{name}.lora_{end}.weight"] = values.bfloat16()
        folder = root / f"a{number}"
        folder.mkdir(parents=True)
        (folder / "adapter_config.json").write_text(json.dumps(config))
        save_file(tensors, folder / "adapter_model.safetensors")
    return (root / "a0" / "adapter_model.safetensors").stat().st_size


@contextlib.contextmanager
def serving(model: Path, flags: list[str]) -> Iterator[None]:
    """Run a deployment while inside."""
    command = [sys.executable, "-m", "pagewire", "serve", str(model), "--port", str(PORT)]
    command += ["--grpc-port", str(GRPC_PORT), "--log-level", "warning", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if "ready" not in (line := process.stdout.readline()):
            raise SystemExit(f"serve did not start: {line}")
        yield
    finally:
        process.terminate()
        process.wait()


class Clients:
    """Asks a deployment for texts under adapters."""

    def __init__(self, client: httpx.AsyncClient, root: Path) -> None:
        self._client = client
        self._root = root
        self._numbers = itertools.count()
        self.num_loaded = 0

    async def load_up_to(self, count: int) -> None:
        """Give names to the first adapters."""
        for number in range(self.num_loaded, count):
            body = {"lora_name": f"a{number}", "lora_path": str(self._root / f"a{number}")}
            answer = await self._client.post("/v1/load_lora_adapter", json=body)
            answer.raise_for_status()
        self.num_loaded = max(count, self.num_loaded)

    async def first_token(self, adapter: int, num_tokens: int = 1) -> float:
        """Ask under an adapter with a new prompt; return the seconds to the first token."""
        random = np.random.default_rng(next(self._numbers))
        body = {
            "model": f"a{adapter}",
            "prompt": random.integers(3, 250, PROMPT_TOKENS).tolist(),
            "max_tokens": num_tokens,
            "ignore_eos": True,
            "stream": True,
        }
        began, first = time.perf_counter(), 0.0
        async with self._client.stream("POST", "/v1/completions", json=body) as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                if line and not first:
                    first = time.perf_counter() - began
        return first

    async def rate(self, adapters: int, options: argparse.Namespace) -> float:
        """Return the tokens per second of requests under the first adapters, by Zipf's law."""
        weights = 1.0 / np.arange(1, adapters + 1)
        random = np.random.default_rng(next(self._numbers))
        chosen = random.choice(adapters, options.requests, p=weights / weights.sum())
        left = iter(chosen.tolist())

        async def ask() -> None:
            for adapter in left:
                await self.first_token(adapter, options.tokens)

        began = time.perf_counter()
        await asyncio.gather(*(ask() for _ in range(options.at_once)))
        return float(options.requests * options.tokens / (time.perf_counter() - began))


async def measure(options: argparse.Namespace, root: Path) -> None:
    """Print the curve, and the seconds to the first token."""
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{PORT}", timeout=SECONDS, limits=httpx.Limits()
    ) as client:
        clients = Clients(client, root)
        counts = [1 << power for power in range(20) if 1 << power < options.adapters]
        print("| adapters | tokens/s | of the point before |\n| --- | --- | --- |")
        before = 1
        for count in [*counts, options.adapters]:
            await clients.load_up_to(count)
            pairs = []
            for _ in range(options.rounds):
                pairs.append([await clients.rate(some, options) for some in (before, count)])
            rate = statistics.median(pair[1] for pair in pairs)
            ratio = statistics.median(pair[1] / pair[0] for pair in pairs)
            print(f"| {count} | {rate:.0f} | {ratio:.2f} |", flush=True)
            before = count
        await first_tokens(clients, options)


async def first_tokens(clients: Clients, options: argparse.Namespace) -> None:
    """Print the medians for an adapter in a slot, in the worker's memory, and in neither."""
    first = clients.num_loaded
    await clients.load_up_to(first + NUM_TIMED)
    cold, slot, memory = [], [], []
    for number in range(first, first + NUM_TIMED):
        cold.append(await clients.first_token(number))
        slot.append(await clients.first_token(number))
    # By now the slots hold the last ones, and the memory of the worker all of these.
    for number in range(first, first + NUM_TIMED - options.slots):
        memory.append(await clients.first_token(number))
    for title, seconds in (("in a slot", slot), ("in memory", memory), ("cold", cold)):
        shown = statistics.median(seconds) * 1e3, max(seconds) * 1e3
        print(f"first token, {title}: median {shown[0]:.1f} ms, longest {shown[1]:.1f} ms")


def main() -> None:
    """Measure one deployment."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--adapters", type=int, default=1000)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--targets", nargs="+", default=["q_proj", "k_proj", "v_proj", "o_proj"])
    parser.add_argument("--slots", type=int, default=8, help="adapters packed for the kernels")
    parser.add_argument("--in-memory", type=int, default=64, help="adapters as in their files")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--requests", type=int, default=64, help="of a round")
    parser.add_argument("--rounds", type=int, default=5, help="of a point and the one before it")
    parser.add_argument("--tokens", type=int, default=16, help="of a request")
    options = parser.parse_args()
    flags = ["--enable-lora", "--max-loras", str(options.slots), "--max-lora-rank"]
    flags += [str(options.rank), "--max-cpu-loras", str(options.in_memory)]
    flags += ["--max-num-seqs", str(options.at_once), "--max-model-len", "256"]
    with tempfile.TemporaryDirectory() as folder:
        root, total = Path(folder) / "adapters", options.adapters + NUM_TIMED
        size = write_adapters(
            options.checkpoint, root, total, options.rank, sorted(options.targets)
        )
        print(describe())
        print(
            f"adapters of {size / 1e6:.1f} MB: {options.slots} in slots, {options.in_memory} in "
            f"memory, {total} on disk; {options.at_once} requests at once of {PROMPT_TOKENS} and "
            f"{options.tokens} tokens"
        )
        flags += ["--lora-roots", str(root)]
        with serving(options.checkpoint, flags):
            asyncio.run(measure(options, root))


if __name__ == "__main__":
    main()
