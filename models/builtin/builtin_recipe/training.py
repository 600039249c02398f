"""The training loop: a clock schedule, progress lines and checkpoints; it evaluates nothing."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import Tokenizer

from builtin_recipe.batches import Batch, BatchSource
from builtin_recipe.circuits import seed_circuits
from builtin_recipe.network import IGNORED_LABEL, Decoder, Shape, num_parameters
from builtin_recipe.optimizers import Optimizers

_NUM_WARMUP_STEPS: Final = 60
_DECAY_SHARE: Final = 0.35
_FINAL_FACTOR: Final = 0.02


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """What a run is given; the rates are per step and belong to this batch size."""

    minutes: float
    directory: Path
    seed: int = 0
    num_tokens_per_step: int = 3072
    muon_rate: float = 0.015
    adam_rate: float = 4e-3
    checkpoint_minutes: float = 2.0
    report_steps: int = 50
    is_compiled: bool = True


@dataclass(slots=True)
class Progress:
    """What a run has done so far; `train_seconds` leaves out the first step of each row length."""

    step: int = 0
    train_seconds: float = 0.0
    compile_seconds: float = 0.0
    num_tokens: int = 0
    num_labels: int = 0
    losses: list[float] = field(default_factory=list)
    lengths: set[int] = field(default_factory=set)

    def account(self, batch: Batch, loss: float, seconds: float) -> None:
        """Add one finished step."""
        length = batch.ids.shape[1]
        if length in self.lengths:
            self.train_seconds += seconds
        else:
            self.compile_seconds += seconds
            self.lengths.add(length)
        self.step += 1
        self.num_tokens += batch.ids.numel()
        self.num_labels += int(batch.labels.ne(IGNORED_LABEL).sum())
        self.losses.append(loss)

    def line(self, recent: int) -> str:
        """Return one line for the log."""
        last = self.losses[-recent:]
        rate = self.num_tokens / max(1.0, self.train_seconds)
        return (
            f"step {self.step}  {self.train_seconds / 60:.2f} min  "
            f"loss {sum(last) / len(last):.3f}  {rate:.0f} tokens/s  "
            f"labelled {self.num_labels / self.num_tokens:.2f}  "
            f"tokens {self.num_tokens / 1e6:.2f}M  compile {self.compile_seconds:.0f} s"
        )


def rate_factor(step: int, share: float) -> float:
    """Return the learning-rate factor: warm-up by steps, constant, then linear by the clock."""
    warmup = min(1.0, (step + 1) / _NUM_WARMUP_STEPS)
    return warmup * min(1.0, max(_FINAL_FACTOR, (1.0 - share) / _DECAY_SHARE))


def save_checkpoint(network: Decoder, progress: Progress, path: Path) -> None:
    """Write weights, shape and counters; a reader never sees half a file."""
    scratch = path.with_suffix(".partial")
    content: dict[str, Any] = {
        "shape": network.shape.as_dict(),
        "weights": network.state_dict(),
        "num_steps": progress.step,
        "num_tokens": progress.num_tokens,
        "train_minutes": progress.train_seconds / 60,
    }
    torch.save(content, scratch)
    scratch.replace(path)


def load_checkpoint(path: Path) -> tuple[Decoder, dict[str, Any]]:
    """Return the network of a checkpoint and the counters beside it."""
    content = torch.load(path, weights_only=True)
    network = Decoder(Shape(**content.pop("shape")))
    network.load_state_dict(content.pop("weights"))
    return network, content


def train(plan: TrainingPlan, tokenizer: Tokenizer, report: Callable[[str], None]) -> Path:
    """Train for `plan.minutes` of step time and return the path of the last checkpoint."""
    torch.manual_seed(plan.seed)
    network = Decoder(Shape(vocab_size=tokenizer.get_vocab_size()))
    seed_circuits(network, tokenizer.get_vocab())
    report(f"{num_parameters(network) / 1e6:.2f}M parameters, {plan}")
    optimizers = Optimizers(network, plan.muon_rate, plan.adam_rate)
    source = BatchSource(tokenizer, random.Random(plan.seed + 1000), plan.num_tokens_per_step)
    if plan.is_compiled:
        # Blocks, not the whole network: a fraction of the compile time for the same speed.
        for block in network.layers:
            block.compile(dynamic=False)
    plan.directory.mkdir(parents=True, exist_ok=True)
    path = plan.directory / "checkpoint.pt"
    progress, total = Progress(), plan.minutes * 60
    next_checkpoint = plan.checkpoint_minutes * 60
    while progress.train_seconds < total:
        started = time.monotonic()
        share = progress.train_seconds / total
        batch = source.draw(share)
        with torch.autocast("cpu", torch.bfloat16):
            loss = network.loss(batch.ids, batch.labels)
        loss.backward()
        optimizers.step(rate_factor(progress.step, share))
        progress.account(batch, loss.item(), time.monotonic() - started)
        if progress.step % plan.report_steps == 0:
            report(progress.line(plan.report_steps))
        if progress.train_seconds >= next_checkpoint:
            next_checkpoint += plan.checkpoint_minutes * 60
            save_checkpoint(network, progress, path)
    save_checkpoint(network, progress, path)
    report("finished  " + progress.line(plan.report_steps))
    return path
