"""The clients against a scripted server on a real socket: events, errors, cancelling."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from pagewire.client.blocking_client import Client
from pagewire.client.client import AsyncClient
from pagewire.client.events import Closed, Delta, Finished, Opened, PromptLogprobs, TokenLogprob
from pagewire_protos.common.v1 import sampling_pb2
from pagewire_protos.frontend.v1 import inference_pb2, inference_pb2_grpc
from pagewire_shared.errors import ContextLengthError, UnavailableError
from support.fakes.scripted_inference import serving


class Scripted(inference_pb2_grpc.InferenceServiceServicer):
    """Echoes a prompt's words as deltas; some prompts misbehave."""

    def __init__(self) -> None:
        self.was_cancelled = threading.Event()
        self.chats: list[inference_pb2.ChatRequest] = []
        self.completions: list[inference_pb2.CompleteRequest] = []

    async def Complete(
        self, request: inference_pb2.CompleteRequest, context: Any
    ) -> AsyncIterator[inference_pb2.CompleteResponse]:
        self.completions.append(request)
        try:
            async for event in self._events(request):
                yield event
        finally:
            # Wherever it was: a cancellation may come before the handler has got to its sleep.
            if request.text == "endless":
                self.was_cancelled.set()

    async def _events(
        self, request: inference_pb2.CompleteRequest
    ) -> AsyncIterator[inference_pb2.CompleteResponse]:
        response = inference_pb2.CompleteResponse
        yield response(
            opened=inference_pb2.StreamOpened(request_id="ab", model="m", prompt_token_ids=[1])
        )
        if request.text == "long":
            raise ContextLengthError("too long", field="prompt")
        for position, word in enumerate(request.text.split()):
            yield response(
                delta=inference_pb2.ChoiceDelta(
                    choice=0, first_position=position, token_ids=[position], text=word
                )
            )
        if request.text == "endless":
            await asyncio.sleep(60)
        yield response(
            finished=inference_pb2.ChoiceFinished(
                choice=0, reason=sampling_pb2.FINISH_REASON_STOP, stop_string="."
            )
        )
        yield response(closed=inference_pb2.StreamClosed())

    async def Chat(
        self, request: inference_pb2.ChatRequest, context: Any
    ) -> AsyncIterator[inference_pb2.ChatResponse]:
        self.chats.append(request)
        response = inference_pb2.ChatResponse
        logprob = inference_pb2.TokenLogprob(
            token_id=5,
            logprob=-0.5,
            top=[inference_pb2.TopLogprob(token_id=6, logprob=-0.25)],
            rank=2,
        )
        yield response(
            prompt_logprobs=inference_pb2.PromptLogprobs(first_position=1, logprobs=[logprob])
        )
        yield response(delta=inference_pb2.ChoiceDelta(token_ids=[5], logprobs=[logprob]))
        yield response(closed=inference_pb2.StreamClosed())

    async def ListModels(
        self, request: inference_pb2.ListModelsRequest, context: Any
    ) -> inference_pb2.ListModelsResponse:
        model = inference_pb2.Model(name="m", is_ready=True)
        return inference_pb2.ListModelsResponse(models=[model])

    async def Tokenize(
        self, request: inference_pb2.TokenizeRequest, context: Any
    ) -> inference_pb2.TokenizeResponse:
        size = len(request.text or request.conversation.messages)
        return inference_pb2.TokenizeResponse(token_ids=[size])

    async def Detokenize(
        self, request: inference_pb2.DetokenizeRequest, context: Any
    ) -> inference_pb2.DetokenizeResponse:
        return inference_pb2.DetokenizeResponse(text=str(list(request.token_ids)))


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Scripted]:
    scripted = Scripted()
    async with serving(scripted, tmp_path / "s"):
        yield scripted


@pytest.fixture
async def client(service: Scripted, tmp_path: Path) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(f"unix:{tmp_path / 's'}", timeout_seconds=20) as connected:
        yield connected


async def test_events_arrive_in_order(client: AsyncClient) -> None:
    events = [event async for event in client.complete("a b")]
    assert [type(event) for event in events] == [Opened, Delta, Delta, Finished, Closed]
    assert events[3] == Finished(0, "stop", "", ".")
    assert [event.text for event in events if isinstance(event, Delta)] == ["a", "b"]


async def test_an_error_arrives_as_its_exception(client: AsyncClient) -> None:
    with pytest.raises(ContextLengthError) as caught:
        async for _ in client.complete("long"):
            pass
    assert caught.value.field == "prompt"


TURN = {"role": "user", "content": "x"}
CHAT: dict[str, Any] = {
    "continue_final_message": True,
    "add_generation_prompt": False,
    "chat_template_kwargs": {"depth": 2},
}


def check_chat(service: Scripted, events: list[Any]) -> None:
    entry = TokenLogprob(5, -0.5, ((6, -0.25),), 2)
    assert events[:2] == [PromptLogprobs(1, (entry,)), Delta(0, 0, [5], "", (entry,))]
    (request,) = service.chats
    assert request.continue_final_message
    assert request.add_generation_prompt is False
    assert request.HasField("add_generation_prompt")
    assert dict(request.template_arguments) == {"depth": 2}


async def test_options_of_a_chat_are_sent_and_its_logprobs_returned(
    client: AsyncClient, service: Scripted
) -> None:
    check_chat(service, [event async for event in client.chat([TURN], **CHAT)])


async def test_the_caller_decides_about_special_tokens(
    client: AsyncClient, service: Scripted
) -> None:
    for special in (True, False):
        async for _ in client.complete("a", add_special_tokens=special):
            pass
    assert [request.add_special_tokens for request in service.completions] == [True, False]


async def test_leaving_a_stream_cancels_it(client: AsyncClient, service: Scripted) -> None:
    events = client.complete("endless")
    await anext(events)
    await events.aclose()
    assert await asyncio.to_thread(service.was_cancelled.wait, 5)


async def test_unary_calls_return_their_results(client: AsyncClient) -> None:
    (model,) = await client.list_models()
    assert (model.name, model.max_model_len, model.is_ready) == ("m", None, True)
    assert await client.tokenize("abc") == [3]
    assert await client.tokenize([{"role": "user", "content": "x"}]) == [1]
    assert await client.detokenize([1, 2]) == "[1, 2]"


async def test_a_missing_server_is_unavailable(tmp_path: Path) -> None:
    async with AsyncClient(f"unix:{tmp_path / 'nobody'}") as lonely:
        with pytest.raises(UnavailableError, match="no server answers"):
            await lonely.wait_connected(0.2)
        with pytest.raises(UnavailableError):
            await lonely.list_models()


def blocking(address: str) -> tuple[list[str], list[int]]:
    with Client(address, timeout_seconds=20) as client:
        client.wait_connected(5)
        texts = [event.text for event in client.complete("a b") if isinstance(event, Delta)]
        endless: Iterator[Any] = client.complete("endless")
        next(endless)
        endless.close()  # type: ignore[attr-defined]
        return texts, client.tokenize("four")


async def test_the_blocking_client_has_the_same_options(service: Scripted, tmp_path: Path) -> None:
    def ask() -> list[Any]:
        with Client(f"unix:{tmp_path / 's'}", timeout_seconds=20) as client:
            list(client.complete("a", add_special_tokens=False))
            return list(client.chat([TURN], **CHAT))

    check_chat(service, await asyncio.to_thread(ask))
    assert service.completions[0].add_special_tokens is False


async def test_the_blocking_client_returns_the_same_events(
    service: Scripted, tmp_path: Path
) -> None:
    texts, ids = await asyncio.to_thread(blocking, f"unix:{tmp_path / 's'}")
    assert (texts, ids) == (["a", "b"], [4])
    assert await asyncio.to_thread(service.was_cancelled.wait, 5)


class Doorkeeper(inference_pb2_grpc.InferenceServiceServicer):
    """Keeps what calls present themselves with."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    async def ListModels(self, request: Any, context: Any) -> inference_pb2.ListModelsResponse:
        self.said.append(dict(context.invocation_metadata()).get("authorization"))
        return inference_pb2.ListModelsResponse()

    async def Chat(self, request: Any, context: Any) -> AsyncIterator[inference_pb2.ChatResponse]:
        self.said.append(dict(context.invocation_metadata()).get("authorization"))
        yield inference_pb2.ChatResponse(closed=inference_pb2.StreamClosed())


async def test_every_call_carries_the_api_key(tmp_path: Path) -> None:
    keeper, path = Doorkeeper(), tmp_path / "grpc.sock"
    async with serving(keeper, path):
        for key in ("secret", None):
            async with AsyncClient(f"unix:{path}", api_key=key) as client:
                await client.list_models()
                async for _ in client.chat([{"role": "user", "content": "x"}]):
                    pass
    assert keeper.said == ["Bearer secret", "Bearer secret", None, None]
