"""Tokens and the time between them, counted per chunk."""

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pagewire_frontend.metrics.tokens import BOUNDS_SECONDS, InterTokenLatency, TokenCounters


def samples(tallies):
    registry = CollectorRegistry()
    registry.register(tallies)
    text = generate_latest(registry).decode()
    return {
        (s.name, s.labels["model"], s.labels.get("le")): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def test_a_chunk_is_as_many_tokens_evenly_spaced():
    tallies = TokenCounters()
    tally = tallies.of("m")
    pace = InterTokenLatency(tally)
    pace.chunk(3, 5.0)
    pace.chunk(4, 5.5)
    found = samples(tallies)
    assert found["pagewire_generation_tokens_total", "m", None] == 7
    name = "pagewire_inter_token_latency_seconds"
    # Between seven tokens there are six intervals: those of the first chunk came at once.
    assert found[f"{name}_count", "m", None] == 6
    assert found[f"{name}_sum", "m", None] == 0.5
    assert found[f"{name}_bucket", "m", "0.1"] == 2
    assert found[f"{name}_bucket", "m", "0.15"] == 6
    assert found[f"{name}_bucket", "m", "+Inf"] == 6


def test_what_is_longer_than_all_bounds_is_counted_too():
    tallies = TokenCounters()
    pace = InterTokenLatency(tallies.of("m"))
    pace.chunk(1, 0.0)
    pace.chunk(1, 2 * BOUNDS_SECONDS[-1])
    found = samples(tallies)
    assert found["pagewire_inter_token_latency_seconds_bucket", "m", "5.0"] == 0
    assert found["pagewire_inter_token_latency_seconds_bucket", "m", "+Inf"] == 1


def test_a_chunk_without_tokens_takes_no_time():
    tallies = TokenCounters()
    pace = InterTokenLatency(tallies.of("m"))
    pace.chunk(1, 0.0)
    pace.chunk(0, 1.0)
    assert samples(tallies)["pagewire_inter_token_latency_seconds_count", "m", None] == 0


def test_models_are_apart():
    tallies = TokenCounters()
    InterTokenLatency(tallies.of("a")).chunk(1, 0.0)
    InterTokenLatency(tallies.of("b")).chunk(2, 0.0)
    found = samples(tallies)
    assert found["pagewire_generation_tokens_total", "a", None] == 1
    assert found["pagewire_generation_tokens_total", "b", None] == 2


def test_a_pace_knows_how_long_its_choice_took():
    pace = InterTokenLatency(TokenCounters().of("m"))
    took = []
    for at in (5.0, 5.5, 7.25):
        took.append(pace.seconds)
        pace.chunk(2, at)
    assert [*took, pace.seconds] == [0, 0, 0.5, 2.25]
