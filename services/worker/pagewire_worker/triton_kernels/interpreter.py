"""Whether Triton interprets kernels on the CPU (TRITON_INTERPRET=1), as tests do.

The interpreter proves indices, masks and algebra, and says nothing of rounding, races or speed. It
holds bfloat16 as whole numbers and computes nonsense with them: kernels load and store that type,
and compute in float32. Where `tl.dot` would take it on a device, they widen first if INTERPRETED.
"""

import os

INTERPRETED: bool = os.environ.get("TRITON_INTERPRET") == "1"
"""Fixed when this is imported, as it is for every kernel."""
