"""Traces of requests as an OTLP receiver gets them."""

import asyncio
import logging
from contextlib import asynccontextmanager

import grpc.aio
from contract.api.test_frontend_timelines import answer, tell
from contract.frontend_clients import completion
from contract.frontend_gateway import gateway, post
from contract.frontend_peers import ids_of
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from prometheus_client import REGISTRY

from pagewire_frontend.metrics.formats import families_in
from pagewire_protos.common.v1 import timeline_pb2

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
CHAT = {"messages": [{"role": "user", "content": "a secret"}], "max_tokens": 3}
PATH = "/v1/chat/completions"
STAGES = ["tokenize", "admit", "queue", "kv_load", "prefill", "first_token", "decode", "deliver"]


class Receiver(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps the spans, with the resource's attributes."""

    def __init__(self):
        self.spans, self.resources = [], []
        self._changed = asyncio.Event()

    async def Export(self, request, context):
        for group in request.resource_spans:
            self.resources.append(attributes_of(group.resource))
            self.spans += [span for scope in group.scope_spans for span in scope.spans]
        self._changed.set()
        return trace_service_pb2.ExportTraceServiceResponse()

    async def traces(self, count):
        """Return {trace id: [root, children]} once there are so many."""
        async with asyncio.timeout(30):
            while len(found := self._by_trace()) < count:
                self._changed.clear()
                await self._changed.wait()
        return found

    def _by_trace(self):
        found = {}
        for span in self.spans:
            found.setdefault(span.trace_id.hex(), []).append(span)
        for spans in found.values():
            spans.sort(key=lambda one: (one.name != "llm_request", one.start_time_unix_nano))
        return found


def attributes_of(message):
    pairs = ((one.key, one.value) for one in message.attributes)
    return {key: getattr(value, value.WhichOneof("value")) for key, value in pairs}


@asynccontextmanager
async def traced(checkpoint, **settings):
    """Yield (client, attach, frontend, receiver)."""
    receiver, server = Receiver(), grpc.aio.server()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(receiver, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        endpoint = f"http://127.0.0.1:{port}"
        async with gateway(checkpoint, otlp_traces_endpoint=endpoint, **settings) as parts:
            yield *parts, receiver
    finally:
        await server.stop(None)


async def test_a_request_is_one_trace_below_its_client(checkpoint):
    async with traced(checkpoint) as (client, attach, _, receiver):
        headers = {"traceparent": PARENT, "tracestate": "a=1", "x-request-id": "mine"}
        asked = post(client, PATH, CHAT, headers=headers)
        submit = await attach.next("submit")
        # Longer than what the scheduler reports.
        await asyncio.sleep(0.03)
        answer(attach, submit)
        assert (await asked).status_code == 200
        root, *stages = (await receiver.traces(1))[TRACE]
    assert (root.name, root.parent_span_id.hex(), root.trace_state) == ("llm_request", SPAN, "a=1")
    assert receiver.resources[0]["service.name"] == "pagewire"
    shown = attributes_of(root)
    assert shown["gen_ai.request.id"] == "mine"
    assert shown["gen_ai.usage.output_tokens"] == shown["gen_ai.usage.completion_tokens"] == 3
    assert shown["gen_ai.latency.time_in_model_prefill"] == 0.02
    assert shown["pagewire.outcome"] == "ended"
    assert "secret" not in str(receiver.spans)
    names = [stage.name for stage in stages]
    assert [name for name in names if name != "grammar"] == [
        name for name in STAGES if name in names
    ]
    assert {"tokenize", "queue", "prefill", "kv_load"} <= set(names)
    assert {stage.parent_span_id for stage in stages} == {root.span_id}
    # No time of the request is without a stage: they touch each other from its arrival to its end.
    ends = [(one.start_time_unix_nano, one.end_time_unix_nano) for one in stages]
    covered = sum(end - begin for begin, end in ends)
    assert covered >= 0.98 * (root.end_time_unix_nano - root.start_time_unix_nano)


async def test_grpc_calls_and_failures(checkpoint):
    async with traced(checkpoint, trace_ratio=0.0) as (client, attach, frontend, receiver):
        quiet = post(client, PATH, CHAT)
        answer(attach, first := await attach.next("submit"))
        assert (await quiet).status_code == 200
        call = frontend.stub.Complete(completion(), metadata=(("traceparent", PARENT),))
        answer(attach, second := await attach.next("submit"))
        async for _ in call:
            pass
        call = frontend.stub.Complete(completion(), timeout=0.5)
        submit = await attach.next("submit")
        # Only who is sampled costs the cell something.
        are_traced = [one.is_traced for one in (first, second, submit)]
        await attach.next("abort")
        traces = await receiver.traces(2)
    assert len(traces.pop(TRACE)) > 4
    assert are_traced == [False, True, False]
    # Without a parent the trace has the name of its request. A failure is traced at any ratio.
    [(name, [root, *_])] = traces.items()
    assert name == submit.request_id.hex()
    assert root.status.code == 2
    assert attributes_of(root)["pagewire.outcome"] == "failed"


async def test_what_workers_and_stores_did_lies_under_the_stages(checkpoint):
    moments = [
        timeline_pb2.TimelineMoment(
            kind=timeline_pb2.MOMENT_KIND_LOAD,
            offset_us=1500,
            length_us=250,
            worker_id=b"w" * 16,
            num_blocks=2,
            stores=[timeline_pb2.StoreShare(address="s:8300", length_us=200, num_bytes=64)],
            tiers=[timeline_pb2.TierShare(tier="disk", num_blocks=2)],
        ),
        timeline_pb2.TimelineMoment(
            kind=timeline_pb2.MOMENT_KIND_PREFILL,
            offset_us=1750,
            length_us=20_000,
            worker_id=b"w" * 16,
            num_tokens=7,
        ),
        timeline_pb2.TimelineMoment(kind=99),
    ]
    async with traced(checkpoint) as (client, attach, _, receiver):
        asked = post(client, PATH, CHAT)
        submit = await attach.next("submit")
        await asyncio.sleep(0.03)
        tell(attach, submit, queue_us=1500, prefill_us=20_000, transfer_us=250, moments=moments)
        attach.tokens(submit, 0, ids_of("yes"))
        attach.finish(submit, 3)
        assert (await asked).status_code == 200
        ((_, spans),) = (await receiver.traces(1)).items()
    names = {span.span_id: span.name for span in spans}
    below = {span.name: span for span in spans}
    parents = {
        name: names[below[name].parent_span_id] for name in ("kv_get", "store_get", "prefill_chunk")
    }
    assert parents == {"kv_get": "kv_load", "store_get": "kv_get", "prefill_chunk": "prefill"}
    chunk, load = attributes_of(below["prefill_chunk"]), attributes_of(below["kv_get"])
    assert chunk["pagewire.worker"] == (b"w" * 16).hex()
    assert (chunk["pagewire.prefill.tokens"], load["pagewire.kv_load.blocks.disk"]) == (7, 2)
    assert attributes_of(below["store_get"])["server.address"] == "s:8300"
    length = below["prefill_chunk"].end_time_unix_nano - below["prefill_chunk"].start_time_unix_nano
    assert abs(length - 20_000_000) < 1000


async def test_an_endpoint_that_is_gone_disturbs_nothing(checkpoint, caplog):
    caplog.set_level(logging.WARNING)

    def failed():
        return REGISTRY.get_sample_value("pagewire_traced_requests_total", {"outcome": "failed"})

    before = failed() or 0.0
    settings = {"otlp_traces_endpoint": "http://127.0.0.1:1"}
    async with gateway(checkpoint, **settings) as (client, attach, _):
        for _ in range(3):
            asked = post(client, PATH, CHAT)
            answer(attach, await attach.next("submit"))
            assert (await asked).status_code == 200
    assert failed() - before == 3.0


async def test_histograms_name_the_traces_of_sampled_requests(checkpoint):
    # No other test of this process has it.
    named = TRACE[::-1]
    asked = {"accept": "application/openmetrics-text"}
    async with traced(checkpoint, trace_ratio=0.0) as (client, attach, _, _receiver):
        quiet = post(client, PATH, CHAT)
        answer(attach, await attach.next("submit"))
        assert (await quiet).status_code == 200
        before = await client.get("/metrics", headers=asked)
        told = post(client, PATH, CHAT, headers={"traceparent": f"00-{named}-{SPAN}-01"})
        submit = await attach.next("submit")
        attach.tokens(submit, 0, ids_of("y"))
        await asyncio.sleep(0.01)
        attach.tokens(submit, 1, ids_of("es"))
        attach.finish(submit, 3)
        assert (await told).status_code == 200
        after, plain = await client.get("/metrics", headers=asked), await client.get("/metrics")
    assert named not in before.text + plain.text
    assert after.headers["content-type"].startswith("application/openmetrics-text")
    assert plain.headers["content-type"].startswith("text/plain")
    shown = {
        sample.name
        for family in families_in(after.text)
        for sample in family.samples
        if sample.exemplar is not None and sample.exemplar.labels == {"trace_id": named}
    }
    assert {
        "pagewire_time_to_first_token_seconds_bucket",
        "pagewire_inter_token_latency_seconds_bucket",
        "pagewire_generation_seconds_bucket",
    } <= shown
