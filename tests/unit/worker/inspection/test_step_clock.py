"""Events of steps, and the traces made of them."""

import gzip
import itertools
import json
from types import SimpleNamespace
from typing import Any

import pytest

from pagewire_shared.errors import InternalError
from pagewire_worker.inspection import step_clock, trace
from pagewire_worker.inspection.step_clock import StepClock
from pagewire_worker.inspection.trace import encode_events, join_fragments
from pagewire_worker.kv.layer_watch import LayerCalls


def plan(step_id: int, num_slots: int = 1) -> Any:
    return SimpleNamespace(step_id=step_id, slots=list(range(num_slots)))


def prepared() -> Any:
    batch = SimpleNamespace(token_ids=[1, 2, 3], output_rows=[0, 1], is_decode=False)
    return SimpleNamespace(batch=batch, slots=[4, 5], sampling_slots=[4])


def run_step(clock: StepClock, step_id: int, num_slots: int = 1) -> None:
    clock.begin(plan(step_id, num_slots))
    clock.mark("prepare")
    clock.forward(prepared())
    clock.layer()
    clock.layer()
    clock.mark("sample")
    clock.end()


def test_phases_lie_in_their_step_one_behind_the_other():
    clock = StepClock(10)
    run_step(clock, 42)
    events = {event.name: event for event in clock.events()}
    assert list(events) == ["plan", "prepare", "layer 0", "layer 1", "forward", "sample", "step"]
    step = events["step"]
    assert step.args == {"step": 42, "sequences": 1}
    assert events["forward"].args == {
        "tokens": 3,
        "rows": 2,
        "sequences": 2,
        "sampled": 1,
        "is_decode": False,
    }
    phases = [events[name] for name in ("plan", "prepare", "forward", "sample")]
    for before, after in itertools.pairwise(phases):
        assert before.ended == after.began or after.began - before.ended < 1_000_000
        assert before.began <= before.ended
    assert step.began <= phases[0].began
    assert phases[-1].ended <= step.ended
    assert events["layer 0"].began == events["forward"].began
    assert events["layer 1"].began == events["layer 0"].ended <= events["forward"].ended


def test_it_is_full_after_its_steps_with_work():
    calls: list[int] = []
    clock = StepClock(2, lambda: calls.append(1))
    run_step(clock, 1, num_slots=0)
    run_step(clock, 2)
    clock.end()
    assert (clock.num_steps, calls) == (1, [])
    run_step(clock, 3)
    num_events = len(clock.events())
    run_step(clock, 4)
    assert calls == [1]
    assert len(clock.events()) == num_events


def test_it_is_full_at_the_bound_of_events(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(step_clock, "MAX_EVENTS", 5)
    calls: list[int] = []
    clock = StepClock(1000, lambda: calls.append(1))
    run_step(clock, 1)
    run_step(clock, 2)
    assert len(clock.events()) == 5
    assert calls == [1]


def test_a_step_that_hangs_is_unfinished():
    clock = StepClock(10)
    clock.begin(plan(1))
    clock.forward(prepared())
    unfinished = [event for event in clock.events() if event.args.get("unfinished")]
    assert [event.name for event in unfinished] == ["forward", "step"]
    assert all(event.ended >= event.began for event in unfinished)


def test_a_trace_joins_the_events_of_ranks():
    clock = StepClock(10)
    run_step(clock, 1)
    own = encode_events(clock.events(), 11, "rank 0", [{"ph": "X", "name": "aten::mm", "pid": 11}])
    other = encode_events(clock.events(), 12, "rank 1")
    content = json.loads(gzip.decompress(join_fragments([own, other])))
    events = content["traceEvents"]
    assert [one["args"]["name"] for one in events if one["name"] == "process_name"] == [
        "rank 0",
        "rank 1",
    ]
    assert [one["pid"] for one in events if one["name"] == "step"] == [11, 12]
    assert [one["pid"] for one in events if one["name"] == "aten::mm"] == [11]
    (step, _) = (one for one in events if one["name"] == "step")
    found = next(event for event in clock.events() if event.name == "step")
    assert step["ts"] == found.began / 1000
    assert step["dur"] == (found.ended - found.began) / 1000


def test_a_trace_that_is_too_long_is_an_error(monkeypatch: pytest.MonkeyPatch):
    clock = StepClock(10)
    run_step(clock, 1)
    fragment = encode_events(clock.events(), 11, "rank 0")
    monkeypatch.setattr(trace, "MAX_TRACE_BYTES", 100)
    with pytest.raises(InternalError, match="ask for fewer steps"):
        join_fragments([fragment])
    monkeypatch.setattr(trace, "MAX_FRAGMENT_BYTES", 100)
    with pytest.raises(InternalError, match="ask for fewer steps"):
        encode_events(clock.events(), 11, "rank 0")


def test_layers_are_awaited_only_while_they_are_profiled():
    plain: list[int] = []
    profiled: list[int] = []
    calls = LayerCalls(lambda: plain.append(1))
    assert not calls.is_awaited
    calls.profile(lambda: profiled.append(1))
    assert calls.is_awaited
    calls()
    calls.profile(lambda: profiled.append(1), is_timed=False)
    assert not calls.is_awaited
    calls()
    calls.profile(None)
    assert not calls.is_awaited
    calls()
    assert (len(plain), len(profiled)) == (3, 2)
