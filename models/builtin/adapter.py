"""Train the example adapter (LoRA, peft format) on the exported built-in model: with it, requests
for JSON are answered with lines of `key: value`.
"""

import argparse
import os
from pathlib import Path
from typing import Final

# One process encodes short texts: the tokenizer's own threads would only compete with training.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from builtin_recipe.model.exporting import load_export
from builtin_recipe.model.lora import export_adapters
from builtin_recipe.training.adapter import NUM_STEPS, adapter_share, train_adapter

PACKAGE: Final = Path(__file__).parent.parent.parent / "pagewire"
BASE_NAME: Final = "pagewire-builtin"
_NUM_CHECKED: Final = 200


def main() -> None:
    """Read the command line, train, export, and say how often the adapter does what it is for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, default=PACKAGE / "builtin_model")
    parser.add_argument("--folder", type=Path, default=PACKAGE / "builtin_adapter")
    parser.add_argument("--steps", type=int, default=NUM_STEPS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    network, tokenizer = load_export(arguments.base)

    def report(line: str) -> None:
        print(line, flush=True)

    train_adapter(network, tokenizer, arguments.steps, arguments.seed, report)
    size = export_adapters(network, arguments.folder, BASE_NAME)
    shares = [adapter_share(network, tokenizer, side, _NUM_CHECKED) for side in (False, True)]
    report(
        f"{size / 1e6:.2f} MB; lines for JSON: {shares[0]:.3f} trained, {shares[1]:.3f} held out"
    )


if __name__ == "__main__":
    main()
