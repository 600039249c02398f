"""Kernels for CUDA in Triton: each file has a kernel, the function that launches it, and the same
in plain torch, its oracle.

Imported only where a device runs them, or Triton's interpreter does.
"""

import os

# As their sums were studied; the default of Triton changes with 3.10.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
