"""Scripted peers of a scheduler over real sockets: a worker that samples a formula, a frontend that journals."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import grpc.aio

from pagewire_protos.common.v1 import audit_pb2, layout_pb2, sampling_pb2
from pagewire_protos.scheduler.v1 import (
    frontend_attach_pb2 as fa,
)
from pagewire_protos.scheduler.v1 import (
    frontend_attach_pb2_grpc,
    worker_attach_pb2_grpc,
)
from pagewire_protos.scheduler.v1 import (
    worker_attach_pb2 as wa,
)
from pagewire_scheduler.config import SchedulerConfig
from pagewire_scheduler.loop import StepLoop
from pagewire_scheduler.service import create_loop, start
from pagewire_shared.arrays import pack_u32, unpack_u32
from pagewire_shared.convert import protocol_range
from pagewire_shared.errors import PagewireError
from pagewire_shared.ids import mint_id
from pagewire_shared.rpc.errors import from_rpc_error
from pagewire_shared.rpc.options import control_channel_options

VOCAB = 1000
TOKENIZER = b"t" * 32


def next_token(tokens: list[int]) -> int:
    """What the scripted worker samples after `tokens`; never 0, which tests use to stop."""
    return 1 + (sum(tokens) * 31 + len(tokens)) % (VOCAB - 1)


def expected(prompt: list[int], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_token(tokens))
    return tokens[len(prompt) :]


@dataclass
class RunningScheduler:
    address: str
    loop: StepLoop


@asynccontextmanager
async def running_scheduler(folder: Path, **changes: object) -> AsyncIterator[RunningScheduler]:
    config = SchedulerConfig(listen=f"unix:{folder}/scheduler.sock", **changes)  # type: ignore[arg-type]
    loop = create_loop(config)
    server = await start(config, loop)
    clock = asyncio.create_task(loop.run_clock())
    try:
        yield RunningScheduler(str(server.address), loop)
        if loop.failure.done():
            loop.failure.result()
    finally:
        clock.cancel()
        await server.stop(0)


@dataclass
class ScriptedWorker:
    """Attaches, runs plans by formula; answers nothing before `gate` is set."""

    address: str
    model: str = "tiny"
    worker_id: bytes = field(default_factory=mint_id)
    tokenizer: bytes = TOKENIZER
    highest_generation: int = 0
    num_blocks: int = 64
    steps_in_flight: int = 2
    max_model_len: int = 256
    is_mute: bool = False
    plans: list[wa.StepPlan] = field(default_factory=list)
    sequences: dict[int, list[int]] = field(default_factory=dict)
    leaks: set[int] = field(default_factory=set)
    received: "asyncio.Queue[wa.StepPlan]" = field(default_factory=asyncio.Queue)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    welcome: wa.WorkerWelcome | None = None

    def hello(self) -> wa.WorkerHello:
        group = layout_pb2.CacheGroup(
            kind=layout_pb2.CACHE_KIND_FULL,
            num_layers=2,
            block_size=4,
            bytes_per_block=64,
            num_shards=1,
            dtype="float32",
        )
        return wa.WorkerHello(
            protocol=protocol_range(),
            worker_id=self.worker_id,
            incarnation=int.from_bytes(mint_id()[:6], "little"),
            highest_generation=self.highest_generation,
            model=self.model,
            tokenizer_fingerprint=self.tokenizer,
            layout=layout_pb2.KvLayout(model_fingerprint=b"m" * 32, groups=[group]),
            capacity=wa.WorkerCapacity(
                num_blocks=self.num_blocks,
                max_num_seqs=8,
                max_num_batched_tokens=32,
                max_model_len=self.max_model_len,
                steps_in_flight=self.steps_in_flight,
                vocab_size=VOCAB,
            ),
        )

    async def run(self) -> None:
        """Serve until the stream ends; a refusal raises the typed error."""
        async with grpc.aio.insecure_channel(
            self.address, options=control_channel_options()
        ) as channel:
            stub = worker_attach_pb2_grpc.WorkerAttachServiceStub(channel)
            call = stub.AttachWorker()
            model_thread = asyncio.create_task(self._answer(call))
            try:
                await call.write(wa.AttachWorkerRequest(hello=self.hello()))
                async for response in call:
                    await self._receive(call, response)
            except grpc.aio.AioRpcError as error:
                raise from_rpc_error(error) from error
            finally:
                model_thread.cancel()
                call.cancel()

    async def _answer(self, call: "grpc.aio.StreamStreamCall") -> None:
        while True:
            plan = await self.received.get()
            await self.gate.wait()
            await call.write(wa.AttachWorkerRequest(result=self._step(plan)))

    async def _receive(
        self, call: "grpc.aio.StreamStreamCall", response: wa.AttachWorkerResponse
    ) -> None:
        kind = response.WhichOneof("message")
        if kind == "welcome":
            self.welcome = response.welcome
            self.sequences.clear()
        elif kind == "plan":
            self.plans.append(response.plan)
            self.received.put_nowait(response.plan)
        elif kind == "audit_query" and not self.is_mute:
            slots = {*self.sequences, *self.leaks}
            audit = audit_pb2.WorkerAudit(worker=self.worker_id.hex(), num_slots=len(slots))
            reply = wa.WorkerAuditReply(
                query_id=response.audit_query.query_id, audit=audit, slots=pack_u32(slots)
            )
            await call.write(wa.AttachWorkerRequest(audit_reply=reply))

    def _step(self, plan: wa.StepPlan) -> wa.StepResult:
        for slot in unpack_u32(plan.freed_slots):
            del self.sequences[slot]
        for new in plan.new_requests:
            assert new.slot not in self.sequences
            prompt = unpack_u32(new.prompt_token_ids)
            self.sequences[new.slot] = prompt + unpack_u32(new.emitted_token_ids)
        slots, token_ids = [], []
        for slot, is_sampled in zip(unpack_u32(plan.slots), plan.samples, strict=True):
            if is_sampled:
                token = next_token(self.sequences[slot])
                self.sequences[slot].append(token)
                slots.append(slot)
                token_ids.append(token)
        return wa.StepResult(
            generation=plan.generation,
            incarnation=plan.incarnation,
            step_id=plan.step_id,
            slots=pack_u32(slots),
            counts=pack_u32([1] * len(slots)),
            token_ids=pack_u32(token_ids),
        )


@dataclass
class ScriptedFrontend:
    """Journals tokens by (handle, choice); a gap or duplicate fails the test at once."""

    address: str
    frontend_id: bytes = field(default_factory=mint_id)
    tokenizers: dict[str, bytes] = field(default_factory=lambda: {"tiny": TOKENIZER})
    held_generation: int | None = None
    held: list[fa.HeldRequest] = field(default_factory=list)
    highest_generation: int = 0
    welcome: fa.Welcome | None = None
    models: list[str] = field(default_factory=list)
    tokens: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    finished: dict[tuple[int, int], fa.FinishedChoice] = field(default_factory=dict)
    rejected: dict[int, fa.Rejected] = field(default_factory=dict)
    num_heartbeats: int = 0
    reports: list[audit_pb2.AuditReport] = field(default_factory=list)
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
        max_tokens = fields.pop("max_tokens", 8)
        sampling = sampling_pb2.SamplingParams(temperature=0, max_tokens=max_tokens, seed=1)
        sampling.stop_token_ids.extend(fields.pop("stop_token_ids", ()))
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
        await self.send(fa.AttachFrontendRequest(submit=message))
        return request_id

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
