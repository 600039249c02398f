"""Make everything from nothing: the built-in model, its draft and its adapter, and the measurements
in the model card; each step is also a script of its own, and a stopped run goes on where it was.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
PACKAGE: Final = HERE.parent.parent / "pagewire"
NUM_STEPS: Final = 16_000
NUM_DRAFT_STEPS: Final = 2_000


def steps(runs: Path, num_steps: int, num_draft_steps: int) -> list[list[str]]:
    """Return the command lines of all steps in their order, without the interpreter."""
    chat, draft = str(runs / "latest"), str(runs / "draft")
    # The draft has to speak the tokens of the model.
    tokenizer = str(runs / "latest" / "tokenizer.json")
    draft_options = ["--run", draft, "--shape", "draft", "--tokenizer", tokenizer]
    return [
        ["train.py", "--run", chat, "--steps", str(num_steps)],
        ["export.py", "--run", chat],
        ["train.py", *draft_options, "--steps", str(num_draft_steps)],
        ["export.py", "--run", draft, "--folder", str(PACKAGE / "builtin_draft")],
        ["adapter.py"],
        ["draft_agreement.py"],
        ["evaluate.py", "--write"],
    ]


def main() -> None:
    """Read the command line and run all steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=HERE / "runs", help="folder of the runs")
    parser.add_argument("--steps", type=int, default=NUM_STEPS, help="training steps of the model")
    parser.add_argument("--draft-steps", type=int, default=NUM_DRAFT_STEPS)
    arguments = parser.parse_args()
    for script, *options in steps(arguments.runs, arguments.steps, arguments.draft_steps):
        print(f"== {script} {' '.join(options)}", flush=True)
        subprocess.run([sys.executable, str(HERE / script), *options], check=True)


if __name__ == "__main__":
    main()
