"""The training loop: a schedule by steps, so that a run repeats exactly for one seed and one number
of threads; it evaluates nothing itself.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import torch
from tokenizers import Tokenizer

from builtin_recipe.model.circuits import seed_circuits
from builtin_recipe.model.network import IGNORED_LABEL, SHAPES, Decoder, Shape, num_parameters
from builtin_recipe.training.batches import Batch, BatchSource
from builtin_recipe.training.optimizers import Optimizers
from builtin_recipe.training.progress import Progress, StepResult
from builtin_recipe.training.run_state import RunState, stop_requests, unchanged_random_states

_NUM_WARMUP_STEPS: Final = 60
_DECAY_SHARE: Final = 0.35
_FINAL_FACTOR: Final = 0.02
_CHECKPOINT: Final = "checkpoint.pt"
_LOG: Final = "log.txt"

Examine = Callable[[Decoder], str]


class StoppedError(Exception):
    """Somebody asked the run to stop; its checkpoint is written."""


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """What a run is given; the rates are per step and belong to this batch size.

    The vocabulary size of `shape` gives way to that of the tokenizer.
    """

    num_steps: int
    directory: Path
    shape: Shape = SHAPES["chat"]
    seed: int = 0
    num_tokens_per_step: int = 3072
    muon_rate: float = 0.015
    adam_rate: float = 4e-3
    checkpoint_minutes: float = 3.0
    report_steps: int = 50
    device: str = "cpu"
    num_workers: int = 0
    is_compiled: bool = True
    is_fresh: bool = False

    def settings(self) -> dict[str, int | float]:
        """Return what a resumed run has to have in common with its beginning."""
        return {
            "seed": self.seed,
            "num_tokens_per_step": self.num_tokens_per_step,
            "muon_rate": self.muon_rate,
            "adam_rate": self.adam_rate,
        }


def rate_factor(step: int, share: float) -> float:
    """Return the learning-rate factor: warm-up by steps, constant, then linear to the end.

    `share` is the share of the run that is done, 0 to 1.
    """
    warmup = min(1.0, (step + 1) / _NUM_WARMUP_STEPS)
    return warmup * min(1.0, max(_FINAL_FACTOR, (1.0 - share) / _DECAY_SHARE))


def train(
    plan: TrainingPlan,
    tokenizer: Tokenizer,
    report: Callable[[str], None],
    examine: Examine | None = None,
) -> Path:
    """Train up to `plan.num_steps` and return the path of the last checkpoint.

    Goes on from the checkpoint in the run's folder unless the plan is fresh. `examine` sees the
    network at every checkpoint and returns a line for the log; it may use random numbers.
    Raises `CheckpointMismatchError` for the checkpoint of another run, and `StoppedError` after
    Ctrl-C or SIGTERM. Call it from the main thread.
    """
    plan.directory.mkdir(parents=True, exist_ok=True)
    path = plan.directory / _CHECKPOINT
    state = _initial_state(plan, tokenizer)
    is_resumed = path.exists() and not plan.is_fresh
    num_planned = state.restore(path) if is_resumed else plan.num_steps
    if not is_resumed:
        (plan.directory / _LOG).unlink(missing_ok=True)
    progress = Progress(
        plan.directory / _LOG, report, plan.report_steps, plan.num_steps, state.counters.num_steps
    )
    try:
        progress.notice(f"{num_parameters(state.network) / 1e6:.2f}M parameters, {plan}")
        if is_resumed:
            progress.notice(f"going on after step {state.counters.num_steps} of {path}")
        if num_planned != plan.num_steps:
            progress.notice(f"planned for {num_planned} steps before, for {plan.num_steps} now")
        _run(plan, tokenizer, state, progress, examine)
        progress.notice("finished  " + progress.line(state.counters))
    finally:
        progress.close()
    return path


def _initial_state(plan: TrainingPlan, tokenizer: Tokenizer) -> RunState:
    """Return the state before step 0: weights are drawn on the CPU and so equal everywhere."""
    torch.manual_seed(plan.seed)
    network = Decoder(replace(plan.shape, vocab_size=tokenizer.get_vocab_size()))
    seed_circuits(network, tokenizer.get_vocab())
    network.to(plan.device)
    optimizers = Optimizers(network, plan.muon_rate, plan.adam_rate)
    if plan.is_compiled:
        # Blocks, not the whole network: a fraction of the compile time for the same speed.
        for block in network.layers:
            block.compile(dynamic=False)
    return RunState(network, optimizers, plan.settings())


def _run(
    plan: TrainingPlan,
    tokenizer: Tokenizer,
    state: RunState,
    progress: Progress,
    examine: Examine | None,
) -> None:
    path, counters = plan.directory / _CHECKPOINT, state.counters
    source = BatchSource(tokenizer, plan.seed, plan.num_tokens_per_step, plan.num_steps)
    saved = began = time.monotonic()
    with stop_requests() as stop:
        for batch in source.batches_from(counters.num_steps, plan.num_workers):
            loss, accuracy = _step(plan, state, batch)
            ended = time.monotonic()
            result = StepResult(loss, accuracy, batch.ids.numel(), ended - began)
            counters.num_steps += 1
            counters.num_tokens += result.num_tokens
            counters.num_labels += int(batch.labels.ne(IGNORED_LABEL).sum())
            counters.seconds += result.seconds
            progress.account(result, counters)
            is_last = counters.num_steps == plan.num_steps
            if is_last or stop.is_set or ended - saved >= plan.checkpoint_minutes * 60:
                state.save(path, plan.num_steps)
                if examine is not None and not stop.is_set:
                    _examine(examine, state, progress)
                saved = time.monotonic()
            if stop.is_set and not is_last:
                raise StoppedError(f"stopped after step {counters.num_steps}; wrote {path}")
            began = time.monotonic()


def _step(plan: TrainingPlan, state: RunState, batch: Batch) -> tuple[float, float]:
    """Take one step and return its loss and accuracy."""
    step = state.counters.num_steps
    ids, labels = batch.ids.to(plan.device), batch.labels.to(plan.device)
    with torch.autocast(torch.device(plan.device).type, torch.bfloat16):
        loss, accuracy = state.network.loss_and_accuracy(ids, labels)
    loss.backward()
    state.optimizers.step(rate_factor(step, step / plan.num_steps))
    return loss.item(), accuracy.item()


def _examine(examine: Examine, state: RunState, progress: Progress) -> None:
    # Not compiled: its many lengths would use up the compiler's cache of shapes.
    eager = torch.compiler.set_stance("force_eager")
    with eager, torch.no_grad(), unchanged_random_states():
        progress.notice(f"step {state.counters.num_steps}  {examine(state.network)}")
