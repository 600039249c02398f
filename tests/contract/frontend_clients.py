"""A gRPC client of the frontend that checks every position of a stream."""

import asyncio

import grpc.aio
import pytest
from contract.frontend_peers import WAIT_SECONDS, Attach, RunningFrontend, eventually

from pagewire_protos.common.v1 import sampling_pb2
from pagewire_protos.frontend.v1 import inference_pb2 as pb


def completion(text="hello", *, max_tokens=64, stop=(), n=None, **sampling):
    return pb.CompleteRequest(
        text=text,
        options=pb.GenerationOptions(
            sampling=sampling_pb2.SamplingParams(max_tokens=max_tokens, **sampling),
            stop=list(stop),
            n=n,
        ),
    )


class Reader:
    """Follows one stream and checks that positions have neither gaps nor doubles."""

    def __init__(self, frontend: RunningFrontend, request, **call):
        self.ids: dict[int, list[int]] = {}
        self.text: dict[int, str] = {}
        self.finished: dict[int, pb.ChoiceFinished] = {}
        self.opened = self.closed = None
        self.logprobs: list[pb.TokenLogprob] = []
        self.call = frontend.stub.Complete(request, **call)
        self.task = asyncio.create_task(self._read())

    async def _read(self):
        async for response in self.call:
            event = response.WhichOneof("event")
            if event == "opened":
                self.opened = response.opened
            elif event == "delta":
                delta = response.delta
                ids = self.ids.setdefault(delta.choice, [])
                assert delta.first_position == len(ids)
                ids.extend(delta.token_ids)
                self.logprobs.extend(delta.logprobs)
                self.text[delta.choice] = self.text.get(delta.choice, "") + delta.text
            elif event == "finished":
                end = response.finished
                self.finished[end.choice] = end
                self.text[end.choice] = self.text.get(end.choice, "") + end.text
            else:
                self.closed = response.closed

    async def end(self):
        await asyncio.wait_for(self.task, WAIT_SECONDS)
        assert self.closed is not None
        return self

    async def error(self):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.wait_for(self.task, WAIT_SECONDS)
        return caught.value

    async def holds(self, num_tokens: int, choice: int = 0):
        await eventually(
            lambda: len(self.ids.get(choice, [])) >= num_tokens, f"{num_tokens} tokens"
        )


async def has_read(frontend: RunningFrontend, attach: Attach) -> None:
    """Wait until the frontend has read all that `attach` was given to send: it reads in order."""
    probe = Reader(frontend, completion())
    attach.say(await attach.next("submit"), ".")
    await probe.end()
