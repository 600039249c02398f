"""How long a step takes: on the device, on the host, and on the clock.

On the device kernels follow each other: each takes the longer of its bytes at the rate that it
reaches and its operations at that, and a little to begin and end; between two of them is a gap. On
the host a step takes the time of its Python, and something for every launch, copy and operator. The
next step is launched before the results of the last one are there, so that the clock shows the
longer of both. A prompt at an idle server waits for both: the host's part before the first kernel
and behind the last comes on top.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from shapes import Shape

from prediction.cards import Card
from prediction.costs import Costs
from prediction.host_figures import HostFigures, HostStep
from prediction.kernels import Kernel, Step, kernel_seconds, step_kernels

QUIET_US = 101.0
"""What benchmarks/worker_host.py finds for one greedy sequence on a quiet machine
(docs/performance.md): a core of a server with a GPU is taken to be as fast."""

MICRO = 1e-6

MEASURED_STEPS = {
    "captured, 1": Step(num_decodes=1, num_context=640),
    "captured, 64": Step(num_decodes=64, num_context=64 * 640),
    "captured, 256": Step(num_decodes=256, num_context=256 * 640),
    "captured, 256, sampled": Step(num_decodes=256, num_context=256 * 640, is_sampled=True),
    "eager, 1": Step(num_decodes=1, num_context=640),
    "eager, 64": Step(num_decodes=64, num_context=64 * 640),
    "eager, 256": Step(num_decodes=256, num_context=256 * 640),
    "mixed, 512 beside 7": Step(num_decodes=7, num_context=7 * 640, prompts=(512,)),
    "prompt of 128": Step(prompts=(128,)),
}
"""What host_steps.py measures, by its names."""

KernelTime = Callable[[Kernel, Card, Costs], float]


@dataclass(frozen=True, slots=True)
class Model:
    """What predictions of steps are made from; `kernel_time` says what one kernel takes."""

    shape: Shape
    card: Card
    costs: Costs
    figures: HostFigures
    kernel_time: KernelTime = kernel_seconds

    def device_seconds(self, step: Step, is_graph: bool = True) -> float:
        """Return what a step takes on the device, with what is copied for it."""
        costs = self.costs
        gap = (costs.gap_us if is_graph else costs.stream_gap_us) * MICRO
        kernels = sum(
            kernel.count * (self.kernel_time(kernel, self.card, costs) + gap)
            for kernel in step_kernels(self.shape, step)
        )
        found = self._host_step(step)
        outside = found.copies + found.operators
        return kernels + outside * (costs.stream_gap_us + costs.ramp_us) * MICRO

    def idle_seconds(self, step: Step) -> float:
        """Return how long the device does nothing around a graph, where the host is early."""
        found = self._host_step(step)
        outside = found.copies + found.operators + found.products + found.launches
        return (outside + 1) * self.costs.stream_gap_us * MICRO

    def host_seconds(self, step: Step) -> float:
        """Return what a step takes in the worker's thread; decodes are graphs."""
        return self._host_us(self._host_step(step), with_layers=True) * MICRO

    def wall_seconds(self, step: Step) -> float:
        """Return what one of many steps takes."""
        return max(self.device_seconds(step, not step.prompts), self.host_seconds(step))

    def measured_seconds(self, name: str) -> tuple[float, float]:
        """Return what one of MEASURED_STEPS takes on the host and on the device."""
        found = self.figures.steps[name]
        device = self.device_seconds(MEASURED_STEPS[name], is_graph=found.graphs > 0)
        return self._host_us(found, with_layers=True) * MICRO, device

    def first_token_seconds(self, num_tokens: int) -> float:
        """Return the 95th percentile of the time to a first token over HTTP."""
        step, costs = Step(prompts=(num_tokens,), is_sampled=True), self.costs
        found = self._host_step(step)
        around = self._host_us(found, with_layers=False) * MICRO
        behind = self.host_seconds(step) - around
        # Of a request to its token; what wakes processes does not depend on their speed.
        request = self.figures.first_token_ms * 1e-3 * self._core + 6 * costs.hop_us * MICRO
        device = self.device_seconds(step, is_graph=False)
        inner = around + max(device, behind) + costs.wake_us * MICRO
        return costs.tail * (request + inner)

    @property
    def _core(self) -> float:
        """What the host's own work takes, of what was measured."""
        return self.costs.core * min(1.0, QUIET_US / self.figures.reference_us)

    def _host_step(self, step: Step) -> HostStep:
        """Return the kind of step that was measured."""
        steps = self.figures.steps
        if not step.prompts:
            return _between(step.num_decodes, step.is_sampled, self.figures)
        return steps["mixed, 512 beside 7" if step.num_decodes else "prompt of 128"]

    def _host_us(self, step: HostStep, with_layers: bool) -> float:
        costs, figures = self.costs, self.figures
        python, launches, products = step.python_us, step.launches, step.products
        if not step.graphs:
            # A product, a norm and the choice of a token are of no layer.
            each, own = (launches - 3) / figures.layers, (products - 1) / figures.layers
            layers = self.shape.layers if with_layers else 0
            python += (layers - figures.layers) * step.layer_us
            launches, products = 3 + layers * each, 1 + layers * own
        return (
            python * self._core
            + launches * costs.launch_us
            + products * costs.product_us
            + step.operators * costs.operator_us
            + step.copies * costs.copy_us
            + step.graphs * costs.graph_us
        )


def _between(num_decodes: int, is_sampled: bool, figures: HostFigures) -> HostStep:
    """Return a captured step of a size between those that were measured."""
    steps = figures.steps
    low, high = steps["captured, 1"], steps["captured, 256"]
    more = (high.python_us - low.python_us) / 255 * (num_decodes - 1)
    if is_sampled:
        sampled = steps["captured, 256, sampled"]
        return replace(sampled, python_us=sampled.python_us - high.python_us + low.python_us + more)
    return replace(high, python_us=low.python_us + more)
