"""Clients that ask one question after the other until they are told to stop, each in its own way,
and count what failed."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import httpx
import openai

from pagewire import AsyncClient, SamplingParams
from pagewire.offline.outputs import OutputCollector

PATIENCE_SECONDS = 120.0


@dataclass
class Tally:
    """What came of the requests of some clients.

    Attributes:
        answers: Way of asking -> number of whole answers that were right.
        faults: What was wrong with the others.
    """

    answers: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class SteadyLoad:
    """Asks for greedy continuations of a prompt, whose text is always the same.

    Args:
        http: Base URL, without /v1.
        grpc: Address.
        model: Name.
        num_tokens: Per answer.
        api_key: None where none is needed.
    """

    http: str
    grpc: str
    model: str
    num_tokens: int
    api_key: str | None = None
    prompts: Sequence[str] = ("Once upon a time", "Tell me a story", "The fox said", "One, two")

    async def expected(self) -> dict[str, str]:
        """Return the right answers, asked one by one."""
        return {prompt: await self._ask_stream(prompt) for prompt in self.prompts}

    async def run(self, until: asyncio.Event, num_clients: int, tally: Tally) -> None:
        """Ask with `num_clients` of every way until the event is set."""
        expected = await self.expected()
        async with (
            openai.AsyncOpenAI(base_url=f"{self.http}/v1", api_key=self.api_key or "x") as client,
            AsyncClient(
                self.grpc, api_key=self.api_key, timeout_seconds=PATIENCE_SECONDS
            ) as grpc_client,
        ):
            ways: dict[str, Callable[[str], Awaitable[str]]] = {
                "openai": lambda prompt: self._ask_openai(client, prompt),
                "grpc": lambda prompt: self._ask_grpc(grpc_client, prompt),
                "fresh connection": self._ask_stream,
            }
            clients = [
                self._follow(way, ask, until, expected, tally)
                for way, ask in ways.items()
                for _ in range(num_clients)
            ]
            await asyncio.gather(*clients)

    async def _follow(
        self,
        way: str,
        ask: Callable[[str], Awaitable[str]],
        until: asyncio.Event,
        expected: dict[str, str],
        tally: Tally,
    ) -> None:
        number = 0
        while not until.is_set():
            prompt = self.prompts[number % len(self.prompts)]
            number += 1
            try:
                text = await ask(prompt)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
                tally.faults.append(f"{way}: {error!r}")
                continue
            if text == expected[prompt]:
                tally.answers[way] += 1
            else:
                tally.faults.append(f"{way}: {prompt!r} was continued with {text!r}")

    async def _ask_openai(self, client: openai.AsyncOpenAI, prompt: str) -> str:
        """With the library's own retries, and its connections kept."""
        answer = await client.completions.create(
            model=self.model, prompt=prompt, temperature=0, max_tokens=self.num_tokens
        )
        return answer.choices[0].text

    async def _ask_grpc(self, client: AsyncClient, prompt: str) -> str:
        params = SamplingParams(temperature=0, max_tokens=self.num_tokens)
        collector = OutputCollector(1, False, False)
        async for event in client.complete(prompt, params, model=self.model):
            collector.add(event)
        return collector.result(None).outputs[0].text

    async def _ask_stream(self, prompt: str) -> str:
        """A stream over a connection of its own, without a retry."""
        body = {"model": self.model, "prompt": prompt, "temperature": 0, "stream": True}
        headers = {} if self.api_key is None else {"authorization": f"Bearer {self.api_key}"}
        text, last = "", ""
        async with (
            httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client,
            client.stream(
                "POST",
                f"{self.http}/v1/completions",
                json={**body, "max_tokens": self.num_tokens},
                headers=headers,
            ) as response,
        ):
            async for line in response.aiter_lines():
                if not line:
                    continue
                last = line.removeprefix("data: ")
                if last != "[DONE]":
                    text += json.loads(last)["choices"][0]["text"]
        assert last == "[DONE]", f"it ended with {last!r}"
        return text
