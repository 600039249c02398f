"""What a frontend talks to, scripted: a scheduler on a real socket, and the frontend itself in
this process."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio

from pagewire_frontend.config import FrontendConfig
from pagewire_frontend.serve import serve
from pagewire_protos.common.v1 import sampling_pb2
from pagewire_protos.frontend.v1 import inference_pb2_grpc
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as wire
from pagewire_protos.scheduler.v1 import frontend_attach_pb2_grpc
from pagewire_shared import PROTOCOL_MAX
from pagewire_shared.identity.ids import tokenizer_fingerprint
from pagewire_shared.kv.arrays import pack_f32, pack_u32, unpack_u32
from pagewire_shared.process.process import ProcessContext
from pagewire_shared.process.status import StatusReporter
from pagewire_shared.rpc.options import server_options

STOP = sampling_pb2.FINISH_REASON_STOP
LENGTH = sampling_pb2.FINISH_REASON_LENGTH
# A busy machine takes seconds for what is a moment elsewhere.
WAIT_SECONDS = 60.0
# A scripted scheduler sends nothing by itself: it is silent while a test thinks of its answer.
# Only a test that is about silence says how long it may be.
SILENCE_SECONDS = 10 * WAIT_SECONDS
FIRST_BYTE_ID = 3


def ids_of(text: str) -> list[int]:
    """Return one id per byte of the test tokenizer, which has a token for each."""
    alphabet = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    shifted = [byte for byte in range(256) if byte not in alphabet]
    characters = {byte: chr(byte) for byte in alphabet}
    characters.update({byte: chr(256 + index) for index, byte in enumerate(shifted)})
    order = sorted(characters.values())
    return [FIRST_BYTE_ID + order.index(characters[byte]) for byte in text.encode()]


class Attach:
    """One attached frontend as the scheduler sees it."""

    def __init__(self, hello: wire.FrontendHello, scheduler: "ScriptedScheduler") -> None:
        self.hello = hello
        self.received: asyncio.Queue[wire.AttachFrontendRequest] = asyncio.Queue()
        self.to_send: asyncio.Queue[wire.AttachFrontendResponse | None] = asyncio.Queue()
        self._scheduler = scheduler

    async def next(self, kind: str) -> Any:
        """Return the next message, which must be of `kind`; heartbeats are skipped."""
        while True:
            message = await asyncio.wait_for(self.received.get(), WAIT_SECONDS)
            found = message.WhichOneof("message")
            if found == "heartbeat" and kind != "heartbeat":
                continue
            assert found == kind, f"got {found}, waited for {kind}: {message}"
            return getattr(message, found)

    def unread(self) -> list[str | None]:
        """Take all that has come; return the kinds. Heartbeats come at any time, and are none."""
        came = [self.received.get_nowait() for _ in range(self.received.qsize())]
        kinds = [message.WhichOneof("message") for message in came]
        return [kind for kind in kinds if kind != "heartbeat"]

    def send(self, **fields: Any) -> None:
        """Send one message."""
        self.to_send.put_nowait(wire.AttachFrontendResponse(**fields))

    def tokens(
        self,
        submit: wire.Submit,
        first_position: int,
        token_ids: Sequence[int],
        *,
        choice: int = 0,
        epoch: int | None = None,
        logprobs: Sequence[float] = (),
        num_cached: int = 0,
    ) -> None:
        """Send one chunk of tokens."""
        batch = wire.TokenBatch(
            handles=pack_u32([submit.handle]),
            choices=pack_u32([choice]),
            epochs=pack_u32([submit.epoch if epoch is None else epoch]),
            first_positions=pack_u32([first_position]),
            counts=pack_u32([len(token_ids)]),
            token_ids=pack_u32(token_ids),
            logprobs=pack_f32(logprobs),
            num_cached_tokens=pack_u32([num_cached]),
        )
        self.send(tokens=batch)

    def finish(
        self, submit: wire.Submit, num_tokens: int, *, reason: int = LENGTH, **fields: Any
    ) -> None:
        """End a choice."""
        choice = wire.FinishedChoice(
            handle=submit.handle,
            epoch=fields.pop("epoch", submit.epoch),
            num_tokens=num_tokens,
            reason=reason,  # type: ignore[arg-type]
            **fields,
        )
        self.send(finished=wire.FinishedChoices(choices=[choice]))

    def say(self, submit: wire.Submit, text: str) -> None:
        """Answer a request whole, continuing after what it has emitted."""
        begin = len(unpack_u32(submit.emitted[0].token_ids))
        ids = ids_of(text)
        self.tokens(submit, begin, ids[begin:])
        self.finish(submit, len(ids))

    def answer(
        self, submit: wire.Submit, choice: int, text: str, *, logprob: float | None = None
    ) -> None:
        """Send a whole choice; `logprob` is that of each token."""
        ids = ids_of(text)
        logprobs = [] if logprob is None else [logprob] * len(ids)
        self.tokens(submit, 0, ids, choice=choice, logprobs=logprobs)
        self.finish(submit, len(ids), choice=choice)

    def end(self) -> None:
        """End the stream."""
        self.to_send.put_nowait(None)

    async def next_attach(self) -> "Attach":
        """Return the stream that the frontend opens next to the same scheduler."""
        return await self._scheduler.attached()


@dataclass
class ScriptedScheduler(frontend_attach_pb2_grpc.FrontendAttachServiceServicer):
    """Welcomes frontends and hands every stream to the test."""

    served: wire.ServedModels
    generation: int = 1000
    cell: str = ""
    refusal: str | None = None
    is_resuming: bool = True
    attaches: "asyncio.Queue[Attach]" = field(default_factory=asyncio.Queue)

    async def AttachFrontend(
        self,
        request_iterator: AsyncIterator[wire.AttachFrontendRequest],
        context: grpc.aio.ServicerContext,
    ) -> AsyncIterator[wire.AttachFrontendResponse]:
        if self.refusal is not None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, self.refusal)
        first = await anext(request_iterator)
        attach = Attach(first.hello, self)
        held = first.hello.held if first.hello.held_generation == self.generation else []
        welcome = wire.Welcome(
            protocol=PROTOCOL_MAX,
            generation=self.generation,
            resumed_handles=pack_u32([item.handle for item in held] if self.is_resuming else []),
            served_models=self.served,
            cell=self.cell,
        )
        yield wire.AttachFrontendResponse(welcome=welcome)

        async def read() -> None:
            async for message in request_iterator:
                for one in _single(message):
                    attach.received.put_nowait(one)

        reader = asyncio.create_task(read())
        self.attaches.put_nowait(attach)
        try:
            while (message := await attach.to_send.get()) is not None:
                yield message
        finally:
            reader.cancel()

    async def attached(self) -> Attach:
        """Return the next stream."""
        return await asyncio.wait_for(self.attaches.get(), WAIT_SECONDS)


def _single(message: wire.AttachFrontendRequest) -> list[wire.AttachFrontendRequest]:
    """Return a message of several submits as messages of one each."""
    if message.WhichOneof("message") != "submits":
        return [message]
    return [wire.AttachFrontendRequest(submit=one) for one in message.submits.submits]


@asynccontextmanager
async def listening(scheduler: ScriptedScheduler, port: int = 0) -> AsyncIterator[int]:
    """Serve a scripted scheduler; yields its port. Leaving is like killing it."""
    server = grpc.aio.server(options=server_options())
    frontend_attach_pb2_grpc.add_FrontendAttachServiceServicer_to_server(scheduler, server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield bound
    finally:
        await server.stop(None)


def served(
    checkpoint: Path, *, name: str = "tiny", max_model_len: int = 512, embedding_size: int = 0
) -> wire.ServedModels:
    """Return the served models of a scheduler with one worker."""
    model = wire.ServedModel(
        name=name,
        tokenizer_fingerprint=tokenizer_fingerprint(checkpoint),
        max_model_len=max_model_len,
        num_workers=1,
        embedding_size=embedding_size,
    )
    return wire.ServedModels(models=[model])


class RecordedStatus(StatusReporter):
    """Keeps the status events instead of printing them."""

    def __init__(self) -> None:
        super().__init__("frontend", is_managed=True)
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._changed = asyncio.Event()

    def report(self, event: str, **details: Any) -> None:
        self.events.append((event, details))
        self._changed.set()

    async def wait(self, event: str) -> dict[str, Any]:
        """Return the details of the first such event."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not (found := [d for name, d in self.events if name == event]):
                self._changed.clear()
                await self._changed.wait()
        return found[0]


@dataclass
class RunningFrontend:
    """A frontend and how to reach it."""

    address: str
    http_url: str
    status: RecordedStatus
    stub: inference_pb2_grpc.InferenceServiceStub
    channel: grpc.aio.Channel
    port: int


@asynccontextmanager
async def running_frontend(
    checkpoint: Path, scheduler_ports: Sequence[int], **settings: Any
) -> AsyncIterator[RunningFrontend]:
    """Run a frontend in this event loop, on ports of its own."""
    settings.setdefault("silence_seconds", SILENCE_SECONDS)
    config = FrontendConfig(
        port=0,
        grpc_port=0,
        scheduler=tuple(f"127.0.0.1:{port}" for port in scheduler_ports),
        model=(f"tiny={checkpoint}",),
        drain_seconds=0.1,
        **settings,
    )
    status = RecordedStatus()
    context = ProcessContext(status)
    task = asyncio.create_task(serve(config, context))
    try:
        listening_event = asyncio.create_task(status.wait("listening"))
        await asyncio.wait({task, listening_event}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            listening_event.cancel()
            task.result()
        details = listening_event.result()
        async with grpc.aio.insecure_channel(str(details["grpc"])) as channel:
            yield RunningFrontend(
                address=str(details["grpc"]),
                http_url=f"http://{details['http']}",
                status=status,
                stub=inference_pb2_grpc.InferenceServiceStub(channel),
                channel=channel,
                port=int(str(details["http"]).rpartition(":")[2]),
            )
    finally:
        context.stop.set()
        await task


@asynccontextmanager
async def attached_frontend(
    checkpoint: Path,
    *,
    is_resuming: bool = True,
    embedding_size: int = 0,
    served_length: int = 512,
    **settings: Any,
) -> AsyncIterator[tuple[RunningFrontend, Attach]]:
    """Run a frontend that is attached to a scripted scheduler of its own, which serves contexts of
    `served_length` tokens."""
    models = served(checkpoint, max_model_len=served_length, embedding_size=embedding_size)
    scheduler = ScriptedScheduler(models, is_resuming=is_resuming)
    async with (
        listening(scheduler) as port,
        running_frontend(checkpoint, [port], **settings) as frontend,
    ):
        yield frontend, await scheduler.attached()


async def eventually(is_reached: Callable[[], bool], what: str) -> None:
    """Wait until something holds."""
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while not is_reached():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"never reached: {what}") from None
