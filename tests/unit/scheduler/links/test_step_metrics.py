"""Step counters: idle time is nobody's, overlapping steps count once."""

from prometheus_client import REGISTRY

from pagewire_scheduler.metrics.steps import ModelStepMeter


def value(name: str) -> float:
    return REGISTRY.get_sample_value(f"pagewire_{name}_total", {"model": "metered"}) or 0.0


def test_busy_time_counts_overlap_once_and_idle_never() -> None:
    meter = ModelStepMeter("metered")
    meter.sent(10.0)
    meter.sent(10.5)
    meter.answered(11.0, 3, 400_000)
    meter.answered(12.0, 2, 900_000)
    meter.sent(50.0)
    meter.answered(50.25, 0, 0)
    assert value("steps") == 3
    assert value("sampled_tokens") == 5
    assert value("step_busy_seconds") == 2.25
    assert abs(value("step_model_seconds") - 1.3) < 1e-9
