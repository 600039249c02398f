"""How busy a cell is, from a scheduler's message to what /metrics shows of it."""

import asyncio

from contract.frontend_gateway import gateway, post
from contract.frontend_processes import samples

from pagewire_protos.common.v1 import timeline_pb2
from pagewire_protos.scheduler.v1 import cell_metrics_pb2
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as wire

WAIT_SECONDS = 10.0
WAITING = "vllm:num_requests_waiting_by_reason"


async def shown(client):
    answer = await client.get("/metrics")
    assert answer.status_code == 200
    return samples(answer.text)


async def eventually_shown(client, key, value):
    async with asyncio.timeout(WAIT_SECONDS):
        while (found := await shown(client)).get(key) != value:
            await asyncio.sleep(0.05)
    return found


def cell(**fields):
    return cell_metrics_pb2.CellMetrics(
        models=[
            cell_metrics_pb2.ModelMetrics(model="tiny", **fields),
            cell_metrics_pb2.ModelMetrics(model="of no frontend", num_running=7),
        ]
    )


async def test_what_a_scheduler_says_is_shown_until_it_is_lost(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        attach.send(
            cell_metrics=cell(
                num_running=3,
                num_waiting_for_capacity=2,
                num_waiting_for_kv=1,
                num_workers=1,
                num_blocks=40,
                num_used_blocks=10,
                block_size=16,
            )
        )
        running = ("vllm:num_requests_running", "0", "tiny")
        await eventually_shown(client, running, 3)
        # Metrics are read while they are set; all of these are by the time that the last one is.
        found = await eventually_shown(client, ("pagewire_cell_workers", "tiny"), 1)
        assert found["vllm:num_requests_waiting", "0", "tiny"] == 3
        assert found[WAITING, "0", "tiny", "capacity"] == 2
        assert found[WAITING, "0", "tiny", "deferred"] == 1
        assert found["vllm:kv_cache_usage_perc", "0", "tiny"] == 0.25
        assert found["vllm:cache_config_info", "16", "0", "tiny", "40"] == 1
        assert found["pagewire_frontend_ready",] == 1
        assert found["process_cpu_seconds_total",] > 0
        assert not [key for key in found if "of no frontend" in key]
        attach.end()
        await eventually_shown(client, running, 0)
        await eventually_shown(client, ("pagewire_cell_workers", "tiny"), 0)


async def test_who_waits_here_for_a_worker_is_counted(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        attach.send(served_models=wire.ServedModels())
        key = ("pagewire_waiting_sequences", "tiny", "worker")
        await eventually_shown(client, ("pagewire_frontend_ready",), 0)
        request = post(client, "/v1/completions", {"model": "tiny", "prompt": "a"})
        found = await eventually_shown(client, key, 1)
        assert found[WAITING, "0", "tiny", "capacity"] == 1, "an autoscaler is to see it"
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        await eventually_shown(client, key, 0)


async def test_what_schedulers_say_of_a_choice_is_counted_once(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        before = await shown(client)
        body = {"model": "tiny", "prompt": "abcd", "max_tokens": 3}
        request = post(client, "/v1/completions", body)
        submit = await attach.next("submit")
        for num_preemptions in (1, 1, 3):
            timeline = timeline_pb2.ChoiceTimeline(
                queue_us=400_000,
                prefill_us=1_000_000,
                transfer_us=2_000,
                transfer_bytes=50,
                num_preemptions=num_preemptions,
                num_migrations=1,
            )
            item = wire.HandleTimeline(handle=submit.handle, timeline=timeline)
            attach.send(timelines=wire.TimelineBatch(timelines=[item]))
        attach.tokens(submit, 0, [5, 6, 7])
        attach.finish(submit, 3)
        assert (await request).status_code == 200
        found = await shown(client)

        def grown(*key):
            return found[key] - before[key]

        assert grown("pagewire_preemptions_total", "tiny") == 3
        assert grown("vllm:num_preemptions_total", "0", "tiny") == 3
        assert grown("pagewire_migrations_total", "tiny") == 1
        assert grown("pagewire_transfer_bytes_total", "tiny", "store") == 50
        assert round(grown("vllm:request_queue_time_seconds_sum", "0", "tiny"), 6) == 0.4
        assert round(grown("vllm:request_prefill_time_seconds_sum", "0", "tiny"), 6) == 1.0
        assert grown("vllm:request_success_total", "0", "length", "tiny") == 1
        assert grown("vllm:request_params_max_tokens_sum", "0", "tiny") == 3


async def test_the_names_of_vllm_can_be_left_out(checkpoint):
    async with gateway(checkpoint, vllm_metrics=False) as (client, _, _):
        found = await shown(client)
        assert [key for key in found if key[0] == "pagewire_generations_in_flight"]
        assert not [key for key in found if key[0].startswith("vllm:")]
