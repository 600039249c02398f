"""The stream to a frontend that pauses: what waits is merged and bounded, in order, and the stream
stands."""

import asyncio
import time
from collections import defaultdict
from contextlib import asynccontextmanager

import pytest

from pagewire_protos.common.v1 import audit_pb2
from pagewire_protos.scheduler.v1 import admin_pb2
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as pb
from pagewire_scheduler.core.data.events import (
    FinishedEvent,
    RejectedEvent,
    TimelineEvent,
    TokensEvent,
    VectorEvent,
)
from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.data.timeline import Timeline
from pagewire_scheduler.core.data.token_logprobs import OutputLogprobs
from pagewire_scheduler.links.frontend_link import FrontendLink
from pagewire_scheduler.links.loop import StepLoop
from pagewire_shared.convert import finding, protocol_range
from pagewire_shared.errors import InternalError
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.kv.arrays import unpack_u32

FRONTEND = b"f" * 16
REQUEST = RequestId(b"r" * 16)
BUDGET = 8 * 2**20
PIECE = 2**20
KNOWN = defaultdict(OutputLogprobs)


def scores_of(handle, num_tokens):
    """What is known of an output of so many tokens, with 20 alternatives for each."""
    known = KNOWN[handle]
    while len(known) < num_tokens:
        known.append(-0.5, 1, range(20), (-0.5,) * 20)
    return known


def tokens(handle, first, token_ids, *, scores=False):
    logprobs = scores_of(handle, first + len(token_ids)) if scores else None
    return TokensEvent(FRONTEND, handle, 0, 0, first, tuple(token_ids), logprobs, 0)


def end(handle, num_tokens, **fields):
    fields = {"state": State.FINISHED_LENGTH, "stop_token_id": None, "error": None, **fields}
    return FinishedEvent(
        frontend_id=FRONTEND,
        request_id=REQUEST,
        handle=handle,
        choice=0,
        epoch=0,
        num_tokens=num_tokens,
        **fields,
    )


class Reader:
    """A frontend that reads when the test says so."""

    def __init__(self, link, stream):
        self.link = link
        self.stream = stream
        self.messages = []
        self.tokens = defaultdict(list)
        self.ended = {}

    async def read(self):
        """Read everything that waits."""
        self.link.send_heartbeat(1)
        while (message := await anext(self.stream)).WhichOneof("message") != "heartbeat":
            assert message.ByteSize() <= BUDGET
            self.messages.append(message)
            self._take(message)

    def kinds(self):
        return [message.WhichOneof("message") for message in self.messages]

    def _take(self, message):
        batch, begin = message.tokens, 0
        token_ids = unpack_u32(batch.token_ids)
        counts, firsts = unpack_u32(batch.counts), unpack_u32(batch.first_positions)
        for handle, first, count in zip(unpack_u32(batch.handles), firsts, counts, strict=True):
            assert handle not in self.ended, "a token after the end"
            assert first == len(self.tokens[handle]), "a gap, or a token twice"
            self.tokens[handle] += token_ids[begin : begin + count]
            begin += count
        if batch.logprobs:
            assert len(batch.logprobs) == len(batch.token_ids)
        for choice in message.finished.choices:
            assert choice.num_tokens == len(self.tokens[choice.handle])
            self.ended[choice.handle] = choice


@asynccontextmanager
async def reading():
    loop = StepLoop(is_caching=True, lease_seconds=5.0, clock=time.monotonic)
    hello = pb.FrontendHello(protocol=protocol_range(), frontend_id=FRONTEND)
    link = FrontendLink(loop, hello, audit=lambda: None)

    async def silence():
        await asyncio.Event().wait()
        yield

    stream = link.run(silence())
    assert (await anext(stream)).HasField("welcome")
    try:
        yield Reader(link, stream)
    finally:
        link.close(None)
        await stream.aclose()


async def test_many_steps_are_few_messages_in_order():
    async with reading() as reader:
        for step in range(5000):
            handles = [h for h in range(16) if h != 3 or step < 3000]
            for half in (handles[:8], handles[8:]):
                reader.link.send_events([tokens(handle, step, [step + handle]) for handle in half])
            if step == 2999:
                reader.link.send_events([end(3, 3000)])
        await asyncio.sleep(0)
        await reader.read()
        assert reader.ended.keys() == {3}
        for handle in range(16):
            num_tokens = 3000 if handle == 3 else 5000
            assert reader.tokens[handle] == [step + handle for step in range(num_tokens)]
        assert len(reader.messages) < 20
        # What comes next is as prompt as before.
        reader.link.send_events([tokens(5, 5000, [9])])
        await reader.read()
        assert reader.tokens[5][-1] == 9


@pytest.mark.parametrize(
    ("num_streams", "num_tokens", "scores"), [(400, 250, True), (1, 100_000, True), (4000, 900, 0)]
)
async def test_a_resend_is_split(num_streams, num_tokens, scores):
    async with reading() as reader:
        events = [
            tokens(handle, 0, range(num_tokens), scores=scores) for handle in range(num_streams)
        ]
        reader.link.send_events([*events, *(end(h, num_tokens) for h in range(num_streams))])
        await reader.read()
        assert len(reader.ended) == num_streams
        assert all(reader.tokens[h] == list(range(num_tokens)) for h in range(num_streams))
        assert max(message.ByteSize() for message in reader.messages) <= PIECE + 1024


async def test_what_does_not_follow_is_not_merged():
    async with reading() as reader:
        reader.link.send_events([tokens(1, 0, [1, 2]), tokens(1, 1, [2, 3]), tokens(1, 9, [4])])
        reader.link.send_events([tokens(1, 10, [5])])
        reader.link.send_heartbeat(1)
        batch = (await anext(reader.stream)).tokens
        assert unpack_u32(batch.first_positions) == [0, 1, 9]
        assert unpack_u32(batch.counts) == [2, 2, 2]


async def test_other_kinds_are_bounded():
    async with reading() as reader:
        handles = range(20_000)
        error = InternalError("it failed: " + "x" * 50_000)
        failed = {"state": State.FINISHED_FAILED, "error": error}
        reader.link.send_events([end(handle, 0, **failed) for handle in range(600)])
        reader.link.send_events([end(handle, 0) for handle in handles[600:]])
        reader.link.send_events(
            [
                TimelineEvent(
                    frontend_id=FRONTEND, handle=handle, choice=0, epoch=0, timeline=Timeline()
                )
                for handle in handles
            ]
        )
        # Models may differ in the length of their vectors.
        for handle in range(2000):
            vector = b"\0" * (4 * 4096 if handle % 2 else 4 * 64)
            number = {"frontend_id": FRONTEND, "handle": handle, "epoch": 0}
            reader.link.send_events([VectorEvent(**number, vector=vector, num_cached_tokens=0)])
        refused = {"frontend_id": FRONTEND, "request_id": REQUEST, "handle": 1, "epoch": 0}
        reader.link.send_events([RejectedEvent(**refused, error=error)])
        await reader.read()
        sizes = [message.ByteSize() for message in reader.messages]
        assert max(sizes) <= PIECE + 1024
        vectors = [message.vectors for message in reader.messages if message.HasField("vectors")]
        for batch in vectors:
            assert len(batch.vectors) % (len(batch.handles) // 4) == 0
        assert sum(len(batch.handles) // 4 for batch in vectors) == 2000
        timelines = [message.timelines.timelines for message in reader.messages]
        assert sum(map(len, timelines)) == len(handles)
        assert len(reader.ended) == len(handles)
        assert list(dict.fromkeys(reader.kinds())) == [
            "rejected",
            "timelines",
            "vectors",
            "finished",
        ]


async def test_answers_that_no_message_holds():
    async with reading() as reader:
        findings = [finding("worker", "leaked_slot", "x" * 900) for _ in range(12_000)]
        report = audit_pb2.AuditReport(generation=5, findings=findings)
        cell = admin_pb2.CellTopology(warnings=["x" * 1000] * 9000)

        async def audit():
            return report

        async def operate(query):
            topology = admin_pb2.TopologyResponse(cells=[cell])
            return pb.AdminAnswer(query_id=query.query_id, topology=topology)

        reader.link._audit, reader.link._operate = audit, operate
        reader.link._receive(pb.AttachFrontendRequest(audit_query=pb.AuditQuery(query_id=1)))
        query = pb.AdminQuery(query_id=2, topology=admin_pb2.TopologyRequest())
        reader.link._receive(pb.AttachFrontendRequest(admin_query=query))
        await asyncio.sleep(0)
        await reader.read()
        answers = {message.WhichOneof("message"): message for message in reader.messages}
        assert (
            "11000 findings more" in answers["audit_answer"].audit_answer.report.findings[-1].detail
        )
        assert "more than a message may" in answers["admin_answer"].admin_answer.error.message
