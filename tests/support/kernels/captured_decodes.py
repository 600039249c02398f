"""The way of CUDA, in Triton's interpreter: static inputs, padding and all, with graphs that are
replayed by address, or do their work anew where tests do not run poisoned."""

import weakref
from collections.abc import Sequence

from torch import Tensor

from pagewire_worker.backend.backend import DecodeBounds
from pagewire_worker.backend.resident_tables import ResidentTables
from pagewire_worker.cuda.backend import CudaBackend
from pagewire_worker.cuda.capture import CapturedWork, Work
from pagewire_worker.cuda.decode_graphs import DecodeGraphs
from pagewire_worker.cuda.sampler import sample
from pagewire_worker.models.adapted_decoder import AdaptedDecoder
from pagewire_worker.runner.model_runner import ModelRunner
from support.kernels.held_readback import HeldReadback
from support.poison.launches import are_checked
from support.poison.recorded import RecordedCapture


class NoCapture:
    """Does the work anew each time, without graphs. Like a graph it keeps no tensor alive.

    A replay fails once the work is freed.

    Args:
        scratch: Memory whose content the work must not rely on: filled with NaN before a replay.
    """

    def __init__(self, scratch: Sequence[Tensor] = ()) -> None:
        self._scratch = tuple(scratch)

    def __call__(self, work: Work) -> CapturedWork:
        """Do `work` once and return it."""
        work()
        seen, scratch = weakref.ref(work), self._scratch

        def replay() -> None:
            kept = seen()
            if kept is None:
                raise ReferenceError("what was captured is gone, and its memory is others'")
            for memory in scratch:
                memory.fill_(float("nan"))
            kept()

        return CapturedWork(replay, work)


class CountedGraphs(DecodeGraphs):
    """Graphs that count the steps they run."""

    num_steps = 0

    def run(self, batch):
        self.num_steps += 1
        return super().run(batch)


def capture_decodes(model_runner: ModelRunner) -> CountedGraphs:
    """Make `model_runner`, of a model on Triton's kernels, run as on CUDA; return its graphs."""
    eager, table = model_runner.backend, model_runner._slots
    watch = eager._on_layer
    bounds = DecodeBounds(table.limits.num_slots, table.limits.max_model_len)
    scratch = next(iter(eager._attentions.values())).scratch
    capture_as = RecordedCapture if are_checked() else NoCapture
    capture = capture_as((scratch.sums, scratch.greatest, scratch.total))
    graphs = CountedGraphs(
        model=eager._model,
        kv_cache=eager.kv_cache,
        attentions=eager._attentions,
        bounds=bounds,
        capture=capture,
        advance=lambda: None,
        takes_adapters=isinstance(eager._model, AdaptedDecoder),
    )
    model_runner._backend = CudaBackend(eager, graphs, watch)
    model_runner._sampler = sample
    model_runner._readback = HeldReadback()
    table.resident = ResidentTables(table.block_tables, table.tokens.device)
    return graphs
