"""Benchmarks are programs, not an installed package: their folder is put on the path."""

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"

sys.path.insert(0, str(BENCHMARKS))
sys.path.append(str(BENCHMARKS / "gpu"))
