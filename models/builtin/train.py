"""Train the built-in model: `python models/builtin/train.py --minutes 16`; writes only below the
run folder.
"""

import argparse
import os
from pathlib import Path

# One process encodes short texts: the tokenizer's own threads would only compete with training.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from builtin_recipe.chat_tokenizer import load_or_train
from builtin_recipe.training import TrainingPlan, train

RUNS = Path(__file__).parent / "runs"


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=16.0, help="training time, compiling excluded"
    )
    parser.add_argument("--run", type=Path, default=RUNS / "latest", help="folder of the run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-compile", action="store_true", help="for machines without a compiler")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    plan = TrainingPlan(
        minutes=arguments.minutes,
        directory=arguments.run,
        seed=arguments.seed,
        is_compiled=not arguments.no_compile,
    )
    tokenizer = load_or_train(arguments.run / "tokenizer.json")

    def report(line: str) -> None:
        print(line, flush=True)

    train(plan, tokenizer, report)


if __name__ == "__main__":
    main()
