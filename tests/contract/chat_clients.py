"""A gRPC client of Chat that puts messages together from their pieces."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc.aio
import pytest
from contract.frontend_peers import WAIT_SECONDS, attached_frontend

from pagewire_protos.common.v1 import error_pb2, sampling_pb2
from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_protos.frontend.v1 import tools_pb2
from support.checkpoints.marked_messages import MarkedPlans
from support.checkpoints.text_models import make_text_model

FIND = tools_pb2.Tool(name="find", parameters='{"type": "object"}')
TEMPLATE = (
    "{% for m in messages %}{{ m.content }}{% endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}"
)


def chat(*turns, max_tokens=64, n=None, options=(), **fields):
    turns = turns or (pb.ChatMessage(role=pb.CHAT_ROLE_USER, content="hi"),)
    return pb.ChatRequest(
        messages=turns,
        options=pb.GenerationOptions(
            sampling=sampling_pb2.SamplingParams(max_tokens=max_tokens), n=n, **dict(options)
        ),
        **fields,
    )


@dataclass
class Said:
    """One choice, whole; `calls` are [id, name, arguments]."""

    content: str = ""
    reasoning: str = ""
    calls: list = field(default_factory=list)
    ids: list = field(default_factory=list)
    end: pb.ChoiceFinished | None = None


class ChatReader:
    """Follows one Chat and checks positions and the form of its pieces."""

    def __init__(self, frontend, request, **call):
        self.said: dict[int, Said] = {}
        self.opened = self.closed = None
        self.deltas: list[pb.ChoiceDelta] = []
        self.call = frontend.stub.Chat(request, **call)
        self.task = asyncio.create_task(self._read())

    async def _read(self):
        async for response in self.call:
            match response.WhichOneof("event"):
                case "opened":
                    self.opened = response.opened
                case "delta":
                    self._take(response.delta)
                case "finished":
                    said = self.said.setdefault(response.finished.choice, Said())
                    said.end, said.content = (
                        response.finished,
                        said.content + response.finished.text,
                    )
                case "closed":
                    self.closed = response.closed

    def _take(self, delta):
        self.deltas.append(delta)
        said = self.said.setdefault(delta.choice, Said())
        assert said.end is None
        assert delta.first_position == len(said.ids)
        said.ids.extend(delta.token_ids)
        said.content += delta.text
        said.reasoning += delta.reasoning
        for call in delta.tool_calls:
            is_new = call.index == len(said.calls)
            assert call.HasField("id") == call.HasField("name") == is_new
            if is_new:
                said.calls.append([call.id, call.name, ""])
            said.calls[call.index][2] += call.arguments

    async def end(self):
        await asyncio.wait_for(self.task, WAIT_SECONDS)
        assert self.closed is not None
        return self

    async def error(self):
        """Return the status and the typed detail of a call that fails."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.wait_for(self.task, WAIT_SECONDS)
        found = [v for k, v in caught.value.trailing_metadata() if k == "pagewire-error-bin"]
        detail = error_pb2.ErrorDetail.FromString(found[0]) if found else None
        return caught.value.code(), detail


@asynccontextmanager
async def chatting(tmp_path, monkeypatch=None, **settings):
    """Yield (frontend, attach, plans): a model whose template shows tools and, with `monkeypatch`,
    whose messages are marked."""
    plans = MarkedPlans()
    if monkeypatch is not None:
        monkeypatch.setattr("pagewire_frontend.grpc_api.convert.plan_message", plans)
    folder = make_text_model(tmp_path / "tiny")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    async with attached_frontend(folder, **settings) as (frontend, attach):
        await frontend.status.wait("ready")
        yield frontend, attach, plans
