"""Train the built-in model: `python models/builtin/train.py`; writes only below the run folder.

Stopped by Ctrl-C or otherwise, the same command goes on where the last checkpoint was written.
"""

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import Final

# One process encodes short texts: the tokenizer's own threads would only compete with training.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from builtin_recipe.evaluation.teacher_forcing import examine
from builtin_recipe.model.chat_tokenizer import load_or_train
from builtin_recipe.model.network import SHAPES
from builtin_recipe.training.loop import StoppedError, TrainingPlan, train
from builtin_recipe.training.run_state import CheckpointMismatchError

_NUM_EXAMINED_PER_CELL: Final = 24
RUNS: Final = Path(__file__).parent / "runs"
_NUM_TOKENS_PER_STEP: Final = {"cpu": 3072, "cuda": 32768}
# On a CPU the cores are busy with the network; an accelerator would wait for its batches.
_NUM_WORKERS: Final = {"cpu": 0, "cuda": 6}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=16_000)
    parser.add_argument("--run", type=Path, default=RUNS / "latest", help="folder of the run")
    parser.add_argument(
        "--tokenizer", type=Path, help="use this one instead of training one into the run's folder"
    )
    parser.add_argument("--shape", choices=sorted(SHAPES), default="chat")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens-per-step", type=int, help="default: by device")
    parser.add_argument("--checkpoint-minutes", type=float, default=5.0)
    parser.add_argument("--fresh", action="store_true", help="start over: ignore a checkpoint")
    parser.add_argument("--no-compile", action="store_true", help="for machines without a compiler")
    return parser.parse_args()


def main() -> None:
    """Read the command line and train."""
    arguments = _arguments()
    torch.set_num_threads(arguments.threads)
    device = arguments.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    plan = TrainingPlan(
        num_steps=arguments.steps,
        directory=arguments.run,
        shape=SHAPES[arguments.shape],
        seed=arguments.seed,
        num_tokens_per_step=arguments.tokens_per_step or _NUM_TOKENS_PER_STEP[device],
        checkpoint_minutes=arguments.checkpoint_minutes,
        device=device,
        num_workers=_NUM_WORKERS[device],
        is_compiled=not arguments.no_compile,
        is_fresh=arguments.fresh,
    )
    if arguments.tokenizer is not None:
        arguments.run.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(arguments.tokenizer, arguments.run / "tokenizer.json")
    tokenizer = load_or_train(arguments.run / "tokenizer.json")

    def report(line: str) -> None:
        print(line, flush=True)

    try:
        train(
            plan,
            tokenizer,
            report,
            lambda network: examine(network, tokenizer, _NUM_EXAMINED_PER_CELL),
        )
    except CheckpointMismatchError as error:
        sys.exit(f"{error} (--fresh starts over)")
    except StoppedError as stopped:
        sys.exit(str(stopped))


if __name__ == "__main__":
    main()
