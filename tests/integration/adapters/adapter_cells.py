"""A deployment with adapters, and what it answers under each."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from support.cells.clusters import Cluster

PROMPT = list(range(10, 90))
"""Long enough to be found in the prefix cache by the next request."""
SECONDS = 60.0


def answer(cluster: Cluster, model: str, num_tokens: int = 8, **fields: Any) -> list[list[int]]:
    """Return the token ids of each choice of a greedy completion under `model`."""
    body = {"prompt": PROMPT, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    body |= {"model": model, "max_tokens": num_tokens, **fields}
    response = httpx.post(f"{cluster.http_url}/v1/completions", json=body, timeout=SECONDS)
    assert response.status_code == 200, response.text
    found = response.json()
    assert found["model"] == model
    return [choice["token_ids"] for choice in found["choices"]]


def load(cluster: Cluster, name: str, folder: Path, **fields: Any) -> httpx.Response:
    """Let a name stand for the adapter in a folder."""
    body = {"lora_name": name, "lora_path": str(folder), **fields}
    url = f"{cluster.http_url}/v1/load_lora_adapter"
    return httpx.post(url, json=body, timeout=SECONDS)


def unload(cluster: Cluster, name: str) -> httpx.Response:
    """Forget a name."""
    body = {"lora_name": name}
    return httpx.post(f"{cluster.http_url}/v1/unload_lora_adapter", json=body, timeout=SECONDS)


def stream(cluster: Cluster, model: str, num_tokens: int) -> Iterator[list[int]]:
    """Yield the token ids of each event of a greedy stream under `model`."""
    body = {"prompt": PROMPT, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    body |= {"model": model, "max_tokens": num_tokens, "stream": True}
    url = f"{cluster.http_url}/v1/completions"
    with httpx.stream("POST", url, json=body, timeout=SECONDS) as response:
        assert response.status_code == 200, response.read()
        for line in response.iter_lines():
            if line.startswith("data: {"):
                event = json.loads(line.removeprefix("data: "))
                assert "error" not in event, event
                for choice in event["choices"]:
                    yield choice.get("token_ids") or []
