"""The short form of `make simulate`: some seeds, the histories that once failed, and a search by
Hypothesis."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from simulation import history, shrink
from simulation.actions import requests as actions
from simulation.checks.observers import Observers
from simulation.clock import Clock, virtual_time
from simulation.coverage import Coverage, counted_moves
from simulation.events import WEIGHTS
from simulation.run import run_chunk
from simulation.world import World

pytestmark = pytest.mark.usefixtures("quiet_logs")

NUM_CHUNKS = 5
SEEDS_PER_CHUNK = 3
FIXTURES = sorted(shrink.SEEDS.glob("*.json"))


@pytest.mark.parametrize("chunk", range(NUM_CHUNKS))
def test_seeds_are_clean(chunk: int) -> None:
    outcome = run_chunk(chunk * SEEDS_PER_CHUNK, SEEDS_PER_CHUNK, history.NUM_EVENTS)
    assert [f"seed {seed}: {failure.detail}" for seed, failure in outcome.failures] == []


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_what_once_failed_is_clean(path: Path) -> None:
    configuration, events, _ = shrink.load(path)
    failure, _ = history.run(configuration, events, Coverage())
    assert failure is None, failure.detail


def test_a_history_can_be_told_again(tmp_path: Path) -> None:
    configuration, events = history.configuration_of(1), history.events_of(1, 60)
    path = tmp_path / "fixture.json"
    shrink.save(path, configuration, events, "a note")
    assert shrink.load(path) == (configuration, events, "a note")
    runs = [history.run(configuration, events, Coverage()) for _ in range(2)]
    assert runs[0] == runs[1]
    failure, digest = runs[0]
    assert failure is None
    assert digest


def test_every_kind_of_event_has_an_action() -> None:
    modules = (actions, *actions.OTHERS)
    known = {
        name
        for module in modules
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__
    }
    assert set(WEIGHTS) <= known


NUMBERS = st.integers(0, 65535)


class WorldMachine(RuleBasedStateMachine):
    """The same world, with events chosen and shrunk by Hypothesis."""

    def __init__(self) -> None:
        super().__init__()
        self.contexts: list[object] = []
        self.world: World | None = None

    @precondition(lambda self: self.world is None)
    @rule(seed=st.integers(0, 500))
    def begin(self, seed: int) -> None:
        clock, coverage = Clock(), Coverage()
        self._enter(counted_moves(coverage))
        self._enter(virtual_time(clock))
        self.world = World(history.configuration_of(seed), coverage, clock)
        self._enter(Observers(self.world))

    @precondition(lambda self: self.world is not None)
    @rule(kind=st.sampled_from(list(WEIGHTS)), a=NUMBERS, b=NUMBERS, c=NUMBERS)
    def happen(self, kind: str, a: int, b: int, c: int) -> None:
        history.apply(self.world, (kind, a, b, c))

    @precondition(lambda self: self.world is not None)
    @rule(a=NUMBERS)
    def go_on(self, a: int) -> None:
        for step in range(8):
            history.apply(self.world, ("pump", a + step, a, step))

    def teardown(self) -> None:
        try:
            if self.world is not None:
                history.settle(self.world)
        finally:
            for context in reversed(self.contexts):
                context.__exit__(None, None, None)  # type: ignore[attr-defined]

    def _enter(self, context: object) -> None:
        context.__enter__()  # type: ignore[attr-defined]
        self.contexts.append(context)


TestWorldMachine = WorldMachine.TestCase
TestWorldMachine.settings = settings(
    max_examples=15,
    stateful_step_count=60,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)
