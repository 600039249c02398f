"""Begins a step of an executor now and takes its result later."""

from collections.abc import Callable

from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import StepResult
from pagewire_worker.runner.model_runner import ModelRunner


def begin_step(model_runner: ModelRunner, plan: StepPlan) -> Callable[[], StepResult]:
    """Begin a step; return what waits for its result, and exits where the step failed."""
    in_flight = model_runner.launch(plan)
    return lambda: _checked(model_runner.collect(in_flight))


def _checked(result: StepResult) -> StepResult:
    if result.failure is not None:
        raise SystemExit(f"a step failed: {result.failure.message}")
    return result
