"""Reloads adapters under their old names, every second, while requests use them and workers die.

    cd tests && python -m support.adapters.reloading --requests 10000

Prompts are computed by other workers than their tokens, prefixes are cached in workers and in a KV
store with memory, disk and Redis, and workers are killed. Each content answers in a way of its own,
so an answer tells which one it is of: that must be one that its name stood for while the request
was accepted.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import torch

from support.adapters.model_adapters import make_adapter
from support.cells.clusters import Cluster, start_cluster
from support.cells.kv_cells import disk_flags, prompt_of
from support.checkpoints.checkpoints import make_checkpoint
from support.processes.kv_stores import KvStore, RedisServer

NUM_NAMES = 4
NUM_CONTENTS = 8
"""Of each name, in turn; no two names share one."""
NUM_TOKENS = 12
NUM_CLIENTS = 8
RELOAD_SECONDS = 1.0
KILL_SECONDS = 20.0
SECONDS = 120.0
PROMPTS = [prompt_of(number, 100, end) for number, end in itertools.product(range(3), range(2))]
Tokens = tuple[int, ...]


@dataclass(slots=True)
class Version:
    """What a name stood for.

    Attributes:
        begun, ended: When its load was sent, and answered; infinite until then.
    """

    content: int
    begun: float
    ended: float = float("inf")


@dataclass(slots=True)
class Verdicts:
    """What came of requests.

    Attributes:
        right: Number of right answers.
        faults: What was wrong with others, by kind: stale, wrong, failed.
        num_cached: Tokens of prompts that were not computed.
    """

    right: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    texts: list[str] = field(default_factory=list)
    num_cached: int = 0
    num_reloads: int = 0
    num_kills: int = 0

    def note(self, kind: str, text: str) -> None:
        """Note a fault."""
        self.faults[kind] += 1
        self.texts.append(f"{kind}: {text[:300]}")


class Reloading:
    """Clients of a cell, one that reloads adapters, and one that kills workers.

    Args:
        folders: NUM_NAMES * NUM_CONTENTS adapters.
    """

    def __init__(self, cluster: Cluster, folders: Sequence[Path]) -> None:
        self.verdicts = Verdicts()
        self._cluster = cluster
        self._folders = folders
        self._versions: dict[str, list[Version]] = {}
        self._expected: dict[tuple[str | int, int], Tokens] = {}
        self._contents: dict[tuple[Tokens, int], int] = {}
        self._random = random.Random(0)

    async def run(self, num_requests: int) -> None:
        """Send so many requests."""
        async with httpx.AsyncClient(base_url=self._cluster.http_url, timeout=SECONDS) as client:
            await self._learn(client)
            for name in range(NUM_NAMES):
                await self._reload(client, name, 0)
            disturbers = [asyncio.create_task(self._reload_all(client))]
            disturbers.append(asyncio.create_task(self._kill_workers()))
            numbers = iter(range(num_requests))
            await asyncio.gather(*(self._ask(client, numbers) for _ in range(NUM_CLIENTS)))
            for one in disturbers:
                one.cancel()
            for outcome in await asyncio.gather(*disturbers, return_exceptions=True):
                if not isinstance(outcome, asyncio.CancelledError):
                    self.verdicts.note("disturber", repr(outcome))

    async def _learn(self, client: httpx.AsyncClient) -> None:
        """Learn what each content answers, under a name and a salt that only it has."""
        for prompt in range(len(PROMPTS)):
            answer, _ = await self._answer(client, self._cluster.model, prompt, cache_salt="model")
            self._expected[self._cluster.model, prompt] = answer
        for content, folder in enumerate(self._folders):
            name = f"probe{content}"
            await self._load(client, name, folder)
            for prompt in range(len(PROMPTS)):
                answer, _ = await self._answer(client, name, prompt, cache_salt=name)
                assert self._contents.setdefault((answer, prompt), content) == content, "two agree"
                assert answer != self._expected[self._cluster.model, prompt]
            gone = await client.post("/v1/unload_lora_adapter", json={"lora_name": name})
            assert gone.status_code == 200, gone.text

    async def _load(self, client: httpx.AsyncClient, name: str, folder: Path) -> None:
        body = {"lora_name": name, "lora_path": str(folder), "load_inplace": True}
        answer = await client.post("/v1/load_lora_adapter", json=body)
        assert answer.status_code == 200, answer.text

    async def _reload(self, client: httpx.AsyncClient, name: int, turn: int) -> None:
        content = name * NUM_CONTENTS + turn % NUM_CONTENTS
        version = Version(content, time.monotonic())
        self._versions.setdefault(f"name{name}", []).append(version)
        await self._load(client, f"name{name}", self._folders[content])
        version.ended = time.monotonic()
        self.verdicts.num_reloads += 1

    async def _reload_all(self, client: httpx.AsyncClient) -> None:
        for turn in itertools.count(1):
            await asyncio.sleep(RELOAD_SECONDS)
            for name in range(NUM_NAMES):
                await self._reload(client, name, turn)

    async def _kill_workers(self) -> None:
        while True:
            await asyncio.sleep(KILL_SECONDS)
            pids = list(self._cluster.local.pids("worker").values())
            if pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._random.choice(pids), signal.SIGKILL)
                    self.verdicts.num_kills += 1

    async def _ask(self, client: httpx.AsyncClient, numbers: Iterator[int]) -> None:
        for number in numbers:
            prompt = self._random.randrange(len(PROMPTS))
            name = f"name{self._random.randrange(NUM_NAMES)}"
            model = self._cluster.model if number % 16 == 0 else name
            sent = time.monotonic()
            try:
                answer, accepted = await self._answer(client, model, prompt)
            except (httpx.HTTPError, AssertionError) as error:
                self.verdicts.note("failed", f"{model}: {error!r}")
                continue
            self._judge(model, prompt, answer, sent, accepted)

    def _judge(self, model: str, prompt: int, answer: Tokens, sent: float, accepted: float) -> None:
        if model == self._cluster.model:
            is_right = answer == self._expected[model, prompt]
            self.verdicts.right += is_right
            if not is_right:
                self.verdicts.note("wrong", f"{model}: {answer}")
            return
        content = self._contents.get((answer, prompt))
        versions = self._versions[model]
        current = {
            one.content
            for number, one in enumerate(versions)
            if one.begun <= accepted
            and not (number + 1 < len(versions) and versions[number + 1].ended < sent)
        }
        if content in current:
            self.verdicts.right += 1
        elif content is None:
            self.verdicts.note("wrong", f"{model}: no content answers {answer}")
        else:
            self.verdicts.note("stale", f"{model}: {content}, not of {current}")

    async def _answer(
        self, client: httpx.AsyncClient, model: str, prompt: int, **fields: Any
    ) -> tuple[Tokens, float]:
        """Return the tokens of a stream, and when the first event came."""
        body = {"model": model, "prompt": PROMPTS[prompt], "max_tokens": NUM_TOKENS, **fields}
        body |= {"temperature": 0, "ignore_eos": True, "return_token_ids": True, "stream": True}
        body |= {"stream_options": {"include_usage": True}}
        tokens: list[int] = []
        accepted = 0.0
        async with client.stream("POST", "/v1/completions", json=body) as response:
            async for line in response.aiter_lines():
                accepted = accepted or time.monotonic()
                if not line.startswith("data: {"):
                    assert response.status_code == 200, f"{response.status_code} {line}"
                    continue
                event = json.loads(line.removeprefix("data: "))
                assert "error" not in event, line
                for choice in event["choices"]:
                    tokens += choice.get("token_ids") or []
                details = (event.get("usage") or {}).get("prompt_tokens_details") or {}
                self.verdicts.num_cached += details.get("cached_tokens") or 0
        assert len(tokens) == NUM_TOKENS, f"{len(tokens)} tokens"
        return tuple(tokens), accepted


@contextlib.contextmanager
def reloading_cell(folder: Path) -> Iterator[Reloading]:
    """Start a cell that hands prompts over, with a KV store of all tiers, and its adapters."""
    checkpoint = make_checkpoint(folder / "tiny", hidden=64, layers=2)
    folders = [
        make_adapter(folder / "adapters" / f"a{seed}", checkpoint, seed=seed, scale=3.0).folder
        for seed in range(NUM_NAMES * NUM_CONTENTS)
    ]
    with contextlib.ExitStack() as stack:
        flags = disk_flags(folder / "disk", memory="1MiB")
        if shutil.which("redis-server") is not None:
            flags = (*flags, "--redis", stack.enter_context(RedisServer(folder)).url)
        store = stack.enter_context(KvStore(folder, *flags))
        cluster = start_cluster(
            checkpoint,
            prefill_workers=1,
            decode_workers=2,
            handoff="always",
            kvstore=(store.address,),
            enable_lora=True,
            lora_roots=[str(folder / "adapters")],
            max_loras=3,
            block_size=16,
            max_model_len=512,
            kv_cache_memory="2MiB",
        )
        stack.callback(cluster.local.stop)
        yield Reloading(cluster, folders)


def main() -> None:
    """Print what came of the requests; the status is that of the verdict."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--requests", type=int, default=10_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, reloading_cell(Path(folder)) as reloading:
        began = time.monotonic()
        asyncio.run(reloading.run(options.requests))
        found = reloading.verdicts
        print(
            f"{options.requests} requests in {time.monotonic() - began:.0f} s, "
            f"{found.num_reloads} reloads, {found.num_kills} kills of workers, "
            f"{found.num_cached} tokens of prompts from caches: {found.right} right, "
            + ", ".join(f"{found.faults[kind]} {kind}" for kind in ("stale", "wrong", "failed"))
        )
        print("\n".join(found.texts[:40]))
        sys.exit(bool(found.texts))


if __name__ == "__main__":
    main()
