"""Make the built-in model from nothing: train, export, evaluate; each step is also a script of its
own.
"""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    """Read the command line and run the three steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=16.0)
    parser.add_argument("--run", type=Path, default=HERE / "runs" / "latest")
    arguments = parser.parse_args()
    run = ["--run", str(arguments.run)]
    for step in (
        ["train.py", "--minutes", str(arguments.minutes), *run],
        ["export.py", *run],
        ["evaluate.py", "--write"],
    ):
        script, *options = step
        subprocess.run([sys.executable, str(HERE / script), *options], check=True)


if __name__ == "__main__":
    main()
