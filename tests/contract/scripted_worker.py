"""A scripted worker over a real socket: it samples a formula."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc
import grpc.aio

from pagewire_protos.common.v1 import audit_pb2, layout_pb2
from pagewire_protos.scheduler.v1 import (
    worker_attach_pb2 as wa,
)
from pagewire_protos.scheduler.v1 import (
    worker_attach_pb2_grpc,
)
from pagewire_shared.convert import protocol_range
from pagewire_shared.identity.ids import mint_id
from pagewire_shared.kv.arrays import pack_u32, unpack_names, unpack_u32
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


def loaded_completely(order: wa.LoadBlocks) -> wa.BlocksLoaded:
    """The answer of a worker whose store has everything in memory."""
    num_blocks = len(order.blocks) // 4
    return wa.BlocksLoaded(
        load_id=order.load_id,
        num_blocks=num_blocks,
        outcome=wa.LOAD_OUTCOME_COMPLETE,
        num_bytes=64 * num_blocks,
        time_us=1000,
        tiers=[wa.LoadedFromTier(tier="memory", num_blocks=num_blocks)],
    )


@dataclass
class ScriptedWorker:
    """Attaches, runs plans by formula; answers nothing before `gate` is set."""

    address: str
    model: str = "tiny"
    worker_id: bytes = field(default_factory=mint_id)
    tokenizer: bytes = TOKENIZER
    highest_generation: int = 0
    cell: str = ""
    num_blocks: int = 64
    steps_in_flight: int = 2
    max_model_len: int = 256
    block_size: int = 4
    max_num_seqs: int = 8
    max_num_batched_tokens: int = 32
    is_mute: bool = False
    loads_blocks: bool = False
    loads: list[wa.LoadBlocks] = field(default_factory=list)
    cancelled_loads: list[int] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    """Kinds of messages, in order."""
    largest_message: int = 0
    """In bytes."""
    answer_load: Callable[[wa.LoadBlocks], wa.BlocksLoaded | None] = loaded_completely
    """None to stay silent."""
    digests: dict[bytes, bytes] | None = field(default_factory=dict)
    """What it says that its blocks hold, by name; None to stay silent."""
    roles: list[int] = field(default_factory=list)
    further_kinds: list[int] = field(default_factory=list)
    """Kinds of its cache groups behind the first, which reads all positions."""
    on_plan: Callable[[wa.StepPlan, dict[int, list[int]]], None] = lambda plan, sequences: None
    """Called with each plan and the tokens by slot, before it samples."""
    hands_out: bool = False
    """Whether other workers can pull its blocks, and it theirs."""
    plans: list[wa.StepPlan] = field(default_factory=list)
    sequences: dict[int, list[int]] = field(default_factory=dict)
    prompt_lengths: dict[int, int] = field(default_factory=dict)
    leaks: set[int] = field(default_factory=set)
    received: "asyncio.Queue[wa.StepPlan]" = field(default_factory=asyncio.Queue)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    welcome: wa.WorkerWelcome | None = None
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def hello(self) -> wa.WorkerHello:
        groups = [
            layout_pb2.CacheGroup(
                kind=kind,
                num_layers=2,
                block_size=self.block_size,
                bytes_per_block=64,
                num_shards=1,
                dtype="float32",
            )
            for kind in (layout_pb2.CACHE_KIND_FULL, *self.further_kinds)
        ]
        return wa.WorkerHello(
            protocol=protocol_range(),
            worker_id=self.worker_id,
            incarnation=int.from_bytes(mint_id()[:6], "little"),
            highest_generation=self.highest_generation,
            cell=self.cell,
            model=self.model,
            tokenizer_fingerprint=self.tokenizer,
            layout=layout_pb2.KvLayout(model_fingerprint=b"m" * 32, groups=groups),
            capacity=wa.WorkerCapacity(
                num_blocks=self.num_blocks,
                max_num_seqs=self.max_num_seqs,
                max_num_batched_tokens=self.max_num_batched_tokens,
                max_model_len=self.max_model_len,
                steps_in_flight=self.steps_in_flight,
                vocab_size=VOCAB,
            ),
            loads_blocks=self.loads_blocks,
            takes_prefixes=True,
            roles=self.roles,
            kv_endpoints=["127.0.0.1:5"] if self.hands_out else [],
            kv_transports=[layout_pb2.KV_TRANSPORT_GRPC] if self.hands_out else [],
            pull_transports=[layout_pb2.KV_TRANSPORT_GRPC] if self.hands_out else [],
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
                await self._write(call, wa.AttachWorkerRequest(hello=self.hello()))
                async for response in call:
                    await self._receive(call, response)
            except grpc.aio.AioRpcError as error:
                raise from_rpc_error(error) from error
            finally:
                model_thread.cancel()
                call.cancel()

    async def _write(
        self, call: "grpc.aio.StreamStreamCall", message: wa.AttachWorkerRequest
    ) -> None:
        async with self._writing:  # a call takes one write at a time
            await call.write(message)

    async def _answer(self, call: "grpc.aio.StreamStreamCall") -> None:
        while True:
            plan = await self.received.get()
            await self.gate.wait()
            await self._write(call, wa.AttachWorkerRequest(result=self._step(plan)))

    async def _receive(
        self, call: "grpc.aio.StreamStreamCall", response: wa.AttachWorkerResponse
    ) -> None:
        kind = response.WhichOneof("message")
        self.heard.append(kind)
        self.largest_message = max(self.largest_message, response.ByteSize())
        if kind == "welcome":
            self.welcome = response.welcome
            self.sequences.clear()
        elif kind == "plan":
            self.plans.append(response.plan)
            self.received.put_nowait(response.plan)
        elif kind == "load_blocks":
            self.loads.append(response.load_blocks)
            answer = self.answer_load(response.load_blocks)
            if answer is not None:
                await self._write(call, wa.AttachWorkerRequest(blocks_loaded=answer))
        elif kind == "cancel_load":
            self.cancelled_loads.append(response.cancel_load.load_id)
        elif kind == "compile_grammar":
            compiled = wa.GrammarCompiled(grammar_id=response.compile_grammar.grammar_id)
            await self._write(call, wa.AttachWorkerRequest(grammar_compiled=compiled))
        elif kind == "set_roles":
            self.roles = list(response.set_roles.roles)
        elif kind == "block_digest_query" and self.digests is not None:
            names = unpack_names(response.block_digest_query.names)
            held = b"".join(self.digests.get(name, bytes(32)) for name in names)
            answer = wa.BlockDigests(query_id=response.block_digest_query.query_id, digests=held)
            await self._write(call, wa.AttachWorkerRequest(block_digests=answer))
        elif kind == "audit_query" and not self.is_mute:
            slots = {*self.sequences, *self.leaks}
            audit = audit_pb2.WorkerAudit(worker=self.worker_id.hex(), num_slots=len(slots))
            reply = wa.WorkerAuditReply(
                query_id=response.audit_query.query_id, audit=audit, slots=pack_u32(slots)
            )
            await self._write(call, wa.AttachWorkerRequest(audit_reply=reply))

    def _step(self, plan: wa.StepPlan) -> wa.StepResult:
        for slot in unpack_u32(plan.freed_slots):
            del self.sequences[slot]
        for new in plan.new_requests:
            assert new.slot not in self.sequences
            prefix = []
            if new.num_prefix_tokens:
                assert new.num_prefix_tokens <= self.prompt_lengths[new.prefix_slot]
                prefix = self.sequences[new.prefix_slot][: new.num_prefix_tokens]
            prompt = prefix + unpack_u32(new.prompt_token_ids)
            self.prompt_lengths[new.slot] = len(prompt)
            self.sequences[new.slot] = prompt + unpack_u32(new.emitted_token_ids)
        # Forks are copies of what their sources were before any fork.
        sources = [list(self.sequences[slot]) for slot in unpack_u32(plan.fork_sources)]
        self.sequences.update(zip(unpack_u32(plan.fork_slots), sources, strict=True))
        forks = zip(unpack_u32(plan.fork_slots), unpack_u32(plan.fork_sources), strict=True)
        self.prompt_lengths.update((slot, self.prompt_lengths[source]) for slot, source in forks)
        assert not plan.appended_slots, "beams are nothing for a formula without alternatives"
        self.on_plan(plan, self.sequences)
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
