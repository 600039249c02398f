"""Tells kernels whether Triton interprets them on the CPU (TRITON_INTERPRET=1), as tests do.

The interpreter proves indices, masks and algebra, but not rounding, races or speed. It holds
bfloat16 as whole numbers and cannot compute with them, so kernels compute in float32. If
INTERPRETED, they also widen the operands of `tl.dot`, which a device takes as they are.
"""

import os

INTERPRETED: bool = os.environ.get("TRITON_INTERPRET") == "1"
"""Fixed at import, as for every kernel."""
