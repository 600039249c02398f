"""A scripted frontend over a real socket: it journals, and a gap or a duplicate fails the test."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import grpc
import grpc.aio
from contract.scripted_worker import TOKENIZER

from pagewire_protos.common.v1 import audit_pb2, sampling_pb2
from pagewire_protos.scheduler.v1 import (
    cell_metrics_pb2,
    frontend_attach_pb2_grpc,
)
from pagewire_protos.scheduler.v1 import (
    frontend_attach_pb2 as fa,
)
from pagewire_shared.convert import protocol_range
from pagewire_shared.errors import PagewireError
from pagewire_shared.identity.ids import mint_id
from pagewire_shared.kv.arrays import pack_u32, unpack_u32
from pagewire_shared.rpc.errors import from_rpc_error
from pagewire_shared.rpc.options import control_channel_options


@dataclass
class ScriptedFrontend:
    """Journals tokens by (handle, choice); a gap or duplicate fails the test at once."""

    address: str
    frontend_id: bytes = field(default_factory=mint_id)
    tokenizers: dict[str, bytes] = field(default_factory=lambda: {"tiny": TOKENIZER})
    held_generation: int | None = None
    held: list[fa.HeldRequest] = field(default_factory=list)
    highest_generation: int = 0
    cell: str = ""
    welcome: fa.Welcome | None = None
    models: list[str] = field(default_factory=list)
    tokens: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    finished: dict[tuple[int, int], fa.FinishedChoice] = field(default_factory=dict)
    rejected: dict[int, fa.Rejected] = field(default_factory=dict)
    num_heartbeats: int = 0
    reports: list[audit_pb2.AuditReport] = field(default_factory=list)
    answers: list[fa.AdminAnswer] = field(default_factory=list)
    timelines: list[fa.HandleTimeline] = field(default_factory=list)
    metrics: list[cell_metrics_pb2.CellMetrics] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    """Kinds of messages, in order."""
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _call: "grpc.aio.StreamStreamCall | None" = None
    _channel: "grpc.aio.Channel | None" = None
    _reader: "asyncio.Task[None] | None" = None

    async def attach(self) -> None:
        self._channel = grpc.aio.insecure_channel(self.address, options=control_channel_options())
        stub = frontend_attach_pb2_grpc.FrontendAttachServiceStub(self._channel)
        self._call = stub.AttachFrontend()
        hello = fa.FrontendHello(
            protocol=protocol_range(),
            frontend_id=self.frontend_id,
            highest_generation=self.highest_generation,
            cell=self.cell,
            models=[
                fa.FrontendModel(name=name, tokenizer_fingerprint=fingerprint)
                for name, fingerprint in self.tokenizers.items()
            ],
            held_generation=self.held_generation,
            held=self.held,
        )
        await self._call.write(fa.AttachFrontendRequest(hello=hello))
        self.welcome = None
        self._reader = asyncio.create_task(self._read())
        await self.until(lambda: self.welcome is not None)

    async def detach(self) -> None:
        assert self._reader is not None
        assert self._channel is not None
        self._reader.cancel()
        with suppress(asyncio.CancelledError, PagewireError):
            await self._reader
        await self._channel.close()

    async def submit(self, handle: int, prompt: list[int], **fields: object) -> bytes:
        message = self._submit_message(handle, prompt, **fields)
        await self.send(fa.AttachFrontendRequest(submit=message))
        return message.request_id

    async def submit_all(self, prompts: dict[int, list[int]], **fields: object) -> None:
        """Submit a prompt for each handle, in one message."""
        each = [self._submit_message(*one, **fields) for one in prompts.items()]
        await self.send(fa.AttachFrontendRequest(submits=fa.SubmitBatch(submits=each)))

    def _submit_message(self, handle: int, prompt: list[int], **fields: object) -> fa.Submit:
        max_tokens = fields.pop("max_tokens", 8)
        sampling = sampling_pb2.SamplingParams(temperature=0, max_tokens=max_tokens, seed=1)
        sampling.stop_token_ids.extend(fields.pop("stop_token_ids", ()))
        if "choice" in fields:
            sampling.structured_outputs.choice.texts.extend(fields.pop("choice"))
        if "logprobs" in fields:
            sampling.logprobs = fields.pop("logprobs")
        request_id = fields.pop("request_id", None) or mint_id()
        emitted = [
            fa.EmittedTokens(token_ids=pack_u32(tokens)) for tokens in fields.pop("emitted", [[]])
        ]
        message = fa.Submit(
            request_id=request_id,
            handle=handle,
            model=fields.pop("model", "tiny"),
            prompt_token_ids=pack_u32(prompt),
            emitted=emitted,
            sampling=sampling,
            generate=fa.GenerateKind(),
            **fields,
        )
        for choice, tokens in enumerate(emitted):
            self.tokens[handle, choice] = unpack_u32(tokens.token_ids)
        return message

    async def abort(self, handle: int) -> None:
        await self.send(fa.AttachFrontendRequest(abort=fa.Abort(handle=handle)))

    async def send(self, message: fa.AttachFrontendRequest) -> None:
        assert self._call is not None
        await self._call.write(message)

    async def until(self, is_there: Callable[[], bool], timeout: float = 10.0) -> None:
        """Wait for messages until `is_there`; a broken stream raises its typed error."""
        async with asyncio.timeout(timeout):
            while not is_there():
                assert self._reader is not None
                if self._reader.done():
                    self._reader.result()
                    raise AssertionError("the stream ended")
                self._news.clear()
                await self._news.wait()

    async def _read(self) -> None:
        assert self._call is not None
        try:
            async for response in self._call:
                await self._receive(response)
                self._news.set()
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        finally:
            self._news.set()

    async def _receive(self, response: fa.AttachFrontendResponse) -> None:
        kind = response.WhichOneof("message")
        self.heard.append(kind)
        if kind == "welcome":
            self.welcome = response.welcome
            self.models = [model.name for model in response.welcome.served_models.models]
        elif kind == "served_models":
            self.models = [model.name for model in response.served_models.models]
        elif kind == "tokens":
            self._take(response.tokens)
        elif kind == "finished":
            for end in response.finished.choices:
                assert end.num_tokens == len(self.tokens[end.handle, end.choice])
                self.finished[end.handle, end.choice] = end
        elif kind == "rejected":
            self.rejected[response.rejected.handle] = response.rejected
        elif kind == "audit_query":
            reply = fa.FrontendAuditReply(
                query_id=response.audit_query.query_id,
                audit=audit_pb2.FrontendAudit(frontend=self.frontend_id.hex()),
            )
            await self.send(fa.AttachFrontendRequest(audit_reply=reply))
        elif kind == "audit_answer":
            self.reports.append(response.audit_answer.report)
        elif kind == "admin_answer":
            self.answers.append(response.admin_answer)
        elif kind == "timelines":
            self.timelines.extend(response.timelines.timelines)
        elif kind == "cell_metrics":
            self.metrics.append(response.cell_metrics)
        elif kind == "heartbeat":
            self.num_heartbeats += 1

    def _take(self, batch: fa.TokenBatch) -> None:
        ids = iter(unpack_u32(batch.token_ids))
        for handle, choice, position, count in zip(
            unpack_u32(batch.handles),
            unpack_u32(batch.choices),
            unpack_u32(batch.first_positions),
            unpack_u32(batch.counts),
            strict=True,
        ):
            held = self.tokens[handle, choice]
            assert position == len(held), "a gap or a duplicate"
            held.extend(next(ids) for _ in range(count))
