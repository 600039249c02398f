"""Kernels for CUDA in Triton. Each file has a kernel and its launch function.

Imported only where a CUDA device or Triton's interpreter runs them.
"""

import os

# The setting under which the order of sums was studied; Triton's default changes with 3.10.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
