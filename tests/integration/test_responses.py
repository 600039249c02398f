"""The Responses API against real processes and the built-in model: conversations, and responses
that outlive the worker which computes them."""

import asyncio
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from support.cells.clusters import Cluster, start_cluster
from support.processes.processes import wait_until
from support.traffic.streams import eventually_clean

NUM_WORKERS = 2
NUM_TOKENS = 700
WAIT_SECONDS = 120.0


@pytest.fixture(scope="module")
def pair() -> Iterator[Cluster]:
    """The built-in model on two workers."""
    cluster = start_cluster(Path(), model=(), num_workers=NUM_WORKERS)
    yield cluster
    cluster.local.stop()


@pytest.fixture(scope="module")
def client(pair: Cluster) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{pair.http_url}/v1", api_key="none", max_retries=0) as made:
        yield made


def asked(cluster: Cluster) -> dict[str, object]:
    """A request whose answer is long, and the same whenever it is computed.

    With the suffix method a worker that knows the answer writes it in a second, and it would end
    before the worker is killed: drafts come from answers with the same salt only.
    """
    return {
        "model": cluster.model,
        "input": "Tell me a story about a fox.",
        "temperature": 1.0,
        "max_output_tokens": NUM_TOKENS,
        "extra_body": {"seed": 11, "ignore_eos": True, "cache_salt": uuid.uuid4().hex},
    }


@pytest.fixture(scope="module")
def undisturbed(pair: Cluster, client: openai.OpenAI) -> str:
    answer = client.responses.create(**asked(pair))  # type: ignore[call-overload]
    assert answer.status == "incomplete"
    assert answer.usage.output_tokens == NUM_TOKENS
    return str(answer.output_text)


def kill_workers(cluster: Cluster) -> None:
    """Kill all workers: whichever computes the response is among them."""
    for pid in cluster.processes["worker"]:
        os.kill(pid, signal.SIGKILL)


def settle(cluster: Cluster) -> None:
    """Wait until all workers are back and nothing is left of earlier requests."""
    asyncio.run(eventually_clean(cluster.grpc_address, NUM_WORKERS, timeout_seconds=WAIT_SECONDS))


def test_a_conversation_that_the_server_keeps(pair: Cluster, client: openai.OpenAI) -> None:
    first = client.responses.create(model=pair.model, input="My name is Clara.", temperature=0)
    with client.responses.stream(
        model=pair.model,
        input="What is my name?",
        previous_response_id=first.id,
        temperature=0,
    ) as stream:
        text = "".join(
            event.delta for event in stream if event.type == "response.output_text.delta"
        )
        second = stream.get_final_response()
    assert second.status == "completed"
    assert second.output_text == text == "Your name is Clara."
    kept = client.responses.retrieve(second.id)
    assert kept.to_dict() == client.responses.retrieve(second.id).to_dict()
    assert kept.output_text == text
    listed = client.responses.input_items.list(second.id, order="asc").data
    assert [item.role for item in listed] == ["user", "assistant", "user"]  # type: ignore[union-attr]


def test_a_stream_goes_on_when_its_worker_is_killed(
    pair: Cluster, client: openai.OpenAI, undisturbed: str
) -> None:
    settle(pair)
    text = ""
    last = None
    stream = client.responses.create(**asked(pair), stream=True)  # type: ignore[call-overload]
    numbers = []
    for event in stream:
        numbers.append(event.sequence_number)
        if event.type == "response.output_text.delta":
            if not text:
                kill_workers(pair)
            text += event.delta
        last = event
    assert last.type == "response.incomplete"
    assert text == last.response.output_text == undisturbed
    assert numbers == list(range(len(numbers)))
    settle(pair)


def test_a_background_response_goes_on_when_its_worker_is_killed(
    pair: Cluster, client: openai.OpenAI, undisturbed: str
) -> None:
    settle(pair)
    body = asked(pair) | {"background": True, "stream": True}
    with client.responses.create(**body) as events:  # type: ignore[call-overload]
        made = next(events).response
        assert any(event.type == "response.output_text.delta" for event in events)
        kill_workers(pair)
    before = client.responses.retrieve(made.id)
    assert before.status == "in_progress", "the response ended before the kill"

    def ended() -> openai.types.responses.Response | None:
        found = client.responses.retrieve(made.id)
        return found if found.status in ("incomplete", "failed") else None

    found = wait_until(ended, WAIT_SECONDS, "the end")
    assert found.status == "incomplete", found.error
    assert found.output_text == undisturbed
    settle(pair)


def test_a_background_response_is_cancelled(pair: Cluster, client: openai.OpenAI) -> None:
    settle(pair)
    body = asked(pair) | {"max_output_tokens": 1900}
    made = client.responses.create(**body, background=True)  # type: ignore[call-overload]
    assert client.responses.cancel(made.id).status == "cancelled"
    assert client.responses.retrieve(made.id).status == "cancelled"
    settle(pair)
