"""Records of a launched step whose result is not known yet. Runs nothing."""

import time
from dataclasses import dataclass

from torch import Tensor

from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import StepResult
from pagewire_worker.batch.input_batch import PreparedStep
from pagewire_worker.runner.left_out import AwaitedMasks
from pagewire_worker.runner.readback import HostCopy


@dataclass(slots=True, kw_only=True)
class LaunchedStep:
    """Work that the device does for a step.

    Attributes:
        hidden: [outputs, hidden], on the device.
        copy: Its sampled tokens, on their way to the host.
        masks: The masks of its rows, and the rows without a mask in time.
        started: Time of the launch, as time.perf_counter.
        ended: Time when the device was seen to be done; None before.
    """

    step: PreparedStep
    hidden: Tensor
    copy: HostCopy
    masks: AwaitedMasks
    started: float
    ended: float | None = None

    @property
    def is_done(self) -> bool:
        """Whether the device has computed the step."""
        event = self.copy.event
        return event is None or event.query()

    def wait(self) -> float:
        """Wait for the device and return `ended`. Raises RuntimeError when the device failed."""
        if self.copy.event is not None:
            self.copy.event.synchronize()
        if self.ended is None:
            self.ended = time.perf_counter()
        return self.ended


@dataclass(slots=True)
class StepInFlight:
    """A plan that was applied, or failed.

    Attributes:
        launched: Its work on the device; None if it has none.
        result: The result; None until it is read.
        gives_names: Whether its named blocks get their names when the result is read.
    """

    plan: StepPlan
    launched: LaunchedStep | None = None
    result: StepResult | None = None
    gives_names: bool = False

    @property
    def is_done(self) -> bool:
        """Whether collecting the step would not wait."""
        return self.result is not None or self.launched is None or self.launched.is_done

    def wait(self) -> None:
        """Wait for the device, in any thread. Raises RuntimeError when it failed."""
        if self.result is None and self.launched is not None:
            self.launched.wait()
