"""The metrics of several processes as one, read with the library's own parser."""

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from pagewire_frontend.group.exposition import GREATEST, summed
from pagewire_frontend.group.metrics import MISSING, PROCESSES, GroupMetrics
from pagewire_frontend.metrics import load as load_gauges
from pagewire_frontend.metrics.formats import families_in, written
from pagewire_shared.errors import UnavailableError
from pagewire_shared.process.metrics_format import is_open_asked

ODD = 'a "b" \\ c\nd'


def exposition(requests, *, endpoint="/v1/x", waits=(), open_requests=0.0, start=None):
    registry = CollectorRegistry()
    counter = Counter("t_requests", "Requests", ["endpoint"], registry=registry)
    counter.labels(endpoint).inc(requests)
    histogram = Histogram("t_wait_seconds", "Wait", registry=registry, buckets=(0.1, 1.0))
    for seconds in waits:
        histogram.observe(seconds)
    Gauge("t_open", "Open", registry=registry).set(open_requests)
    if start is not None:
        Gauge("process_start_time_seconds", "Start", registry=registry).set(start)
    return generate_latest(registry).decode()


def samples(text):
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families_in(text)
        for sample in family.samples
    }


def test_counters_gauges_and_buckets_are_added():
    first = exposition(3, waits=[0.05, 0.5], open_requests=2)
    second = exposition(4, waits=[0.5, 5.0], open_requests=1)
    assert samples(summed([first, second], {})) == {
        ("t_requests_total", "/v1/x"): 7,
        ("t_wait_seconds_bucket", "0.1"): 1,
        ("t_wait_seconds_bucket", "1.0"): 3,
        ("t_wait_seconds_bucket", "+Inf"): 4,
        ("t_wait_seconds_count",): 4,
        ("t_wait_seconds_sum",): pytest.approx(6.05),
        ("t_open",): 3,
    }


def test_types_and_help_stay():
    text = summed([exposition(1), exposition(1)], {})
    kinds = {f.name: (f.type, f.documentation) for f in families_in(text)}
    assert kinds == {
        "t_requests": ("counter", "Requests"),
        "t_wait_seconds": ("histogram", "Wait"),
        "t_open": ("gauge", "Open"),
    }


def test_labels_are_kept_apart_whatever_they_hold():
    text = summed([exposition(1, endpoint=ODD), exposition(2), exposition(3, endpoint=ODD)], {})
    found = samples(text)
    assert found["t_requests_total", ODD] == 4
    assert found["t_requests_total", "/v1/x"] == 2


def test_what_only_one_has_is_there():
    registry = CollectorRegistry()
    Counter("t_resumes", "Resumes", registry=registry).inc(2)
    found = samples(summed([exposition(1), generate_latest(registry).decode()], {}))
    assert found["t_resumes_total",] == 2
    assert found["t_requests_total", "/v1/x"] == 1


def test_the_group_is_as_old_as_its_oldest():
    text = summed([exposition(1, start=200.0), exposition(1, start=100.0)], {})
    assert samples(text)["process_start_time_seconds",] == 100


def test_what_all_say_of_one_cell_is_not_added():
    def cell(usage, blocks):
        registry = CollectorRegistry()
        Gauge("pagewire_cell_kv_usage_ratio", "U", registry=registry).set(usage)
        labels = ["block_size", "num_gpu_blocks"]
        info = Gauge("vllm:cache_config_info", "I", labels, registry=registry)
        info.labels("16", blocks).set(1)
        Gauge("pagewire_running_sequences", "R", registry=registry).set(2)
        return generate_latest(registry).decode()

    assert samples(summed([cell(0.5, "8"), cell(0.25, "8")], {})) == {
        ("pagewire_cell_kv_usage_ratio",): 0.5,
        ("vllm:cache_config_info", "16", "8"): 1,
        ("pagewire_running_sequences",): 4,
    }


def test_every_gauge_of_a_cell_is_one_of_those():
    gauges = {family.name for gauge in load_gauges.MEASURED for family in gauge.collect()}
    assert {name for name in gauges if "cell" in name} <= GREATEST
    assert not {name for name in gauges if "cell" not in name} & GREATEST


def test_an_added_gauge_replaces_what_was_given():
    once = summed([exposition(1)], {"t_processes": ("Processes", 1)})
    assert samples(summed([once, once], {"t_processes": ("Processes", 2)}))["t_processes",] == 2


class Answering:
    name = "b"

    def __init__(self, text):
        self._text = text

    async def metrics(self, is_open):
        if self._text is None:
            raise UnavailableError("frontend b of this group does not answer")
        return self._text


async def test_who_does_not_answer_is_counted():
    peers = [Answering(exposition(2)), Answering(None), Answering(exposition(5))]
    found = samples(await GroupMetrics(lambda _: exposition(1), peers).exposition())
    assert found["t_requests_total", "/v1/x"] == 8
    assert (found[PROCESSES,], found[MISSING,]) == (3, 1)


async def test_one_alone_is_a_group_of_one():
    found = samples(await GroupMetrics(lambda _: exposition(1), []).exposition())
    assert (found[PROCESSES,], found[MISSING,]) == (1, 0)


def observed(trace, seconds, *, is_open=True):
    """A process whose histogram names a trace."""
    registry = CollectorRegistry()
    waits = Histogram("t_wait_seconds", "Waits", ["model"], registry=registry, buckets=[1.0, 2.0])
    for _ in range(2):
        waits.labels("m:x").observe(seconds, {"trace_id": trace})
    Counter("vllm:t_tokens", "Tokens", registry=registry).inc()
    return written(registry, is_open=is_open)


def exemplars(text):
    return {
        (sample.name, sample.labels.get("le")): (sample.exemplar.labels, sample.exemplar.value)
        for family in families_in(text)
        for sample in family.samples
        if sample.exemplar is not None
    }


def test_open_metrics_have_the_newest_exemplar_of_each_bucket():
    older = observed("a", 0.5)
    newer = observed("b", 0.75)
    # A peer of an older version answers in the other format.
    plain = observed("c", 1.5, is_open=False)
    text = summed([older, newer, plain], {"t_processes": ("Processes", 3)}, is_open=True)
    assert exemplars(text) == {("t_wait_seconds_bucket", "1.0"): ({"trace_id": "b"}, 0.75)}
    found = samples(text)
    assert found == samples(summed([older, newer, plain], {"t_processes": ("Processes", 3)}))
    assert found["t_wait_seconds_bucket", "2.0", "m:x"] == 6
    assert "\nvllm:t_tokens_total 3.0\n" in text


@pytest.mark.parametrize(
    ("accept", "is_open"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=1.0.0;q=0.8,text/plain;q=0.5,*/*;q=0.1", True),
        ("application/openmetrics-text;q=0.2,text/plain;version=0.0.4;q=0.5", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=x", False),
    ],
)
def test_who_prefers_open_metrics_gets_them(accept, is_open):
    assert is_open_asked(accept) is is_open
