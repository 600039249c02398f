"""Registers, spills, shared memory and instructions of every kernel, compiled without a device.

    python benchmarks/gpu/compile_table --output docs/gpu/compile-table.md
    python benchmarks/gpu/compile_table --check docs/gpu/compile-table.md
    python benchmarks/gpu/compile_table --only attend_tiles --capabilities 90

The functions of the worker are called as a step calls them, and what they launch is compiled and
not run: sizes, warps and stages are those of a launch. A spill above 16 bytes that has no reason
in reasons.py ends the command with an error.
"""

import sys
from pathlib import Path

# The folder that was named on the command line is a package.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from compile_table.command import main  # noqa: E402

if __name__ == "__main__":
    main(__doc__ or "")
