"""Export a checkpoint as the built-in model and check it against transformers."""

import argparse
from pathlib import Path

import torch
from builtin_recipe.corpus import corpus_vocabulary
from builtin_recipe.model.exporting import export, largest_difference
from builtin_recipe.training.run_state import load_checkpoint
from tokenizers import Tokenizer

HERE = Path(__file__).parent
FOLDER = HERE.parent.parent / "pagewire" / "builtin_model"
# Sums in another order differ by less than this on float32 logits of a few tens.
MAX_DIFFERENCE = 1e-3


def main() -> None:
    """Read the command line, export, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, default=HERE / "runs" / "latest")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder to write")
    arguments = parser.parse_args()
    network, counters = load_checkpoint(arguments.run / "checkpoint.pt")
    tokenizer = Tokenizer.from_file(str(arguments.run / "tokenizer.json"))
    size = export(network, tokenizer, arguments.folder)
    words = "\n".join(corpus_vocabulary()) + "\n"
    (HERE / "vocabulary.txt").write_text(words, encoding="utf-8")
    print(f"{size / 1e6:.2f} MB of weights, {counters}")
    ids = torch.randint(0, network.shape.vocab_size, (1, 64))
    difference = largest_difference(arguments.folder, ids)
    print(f"largest difference to transformers on 64 random tokens: {difference:.1e}")
    if difference > MAX_DIFFERENCE:
        raise SystemExit("the export and transformers disagree")


if __name__ == "__main__":
    main()
