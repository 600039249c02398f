"""How Triton's kernels run where there is no device. Import it before torch, NumPy and Triton."""

import os
from pathlib import Path

_CPU_INFO = Path("/proc/cpuinfo")


def prepare() -> None:
    """Let Triton interpret kernels, which has to be said before the first of them is imported.

    The interpreter multiplies with NumPy. For AVX2, OpenBLAS has products whose bits depend on the
    place of a row among others, so kernels could not be seen to be exact; older and newer ones do
    not, whatever the environment asks for.
    """
    if any(Path("/dev").glob("nvidia[0-9]*")):
        return
    os.environ.setdefault("TRITON_INTERPRET", "1")
    flags = _CPU_INFO.read_text() if _CPU_INFO.exists() else ""
    if "avx2" in flags:
        os.environ["OPENBLAS_CORETYPE"] = "SKYLAKEX" if "avx512f" in flags else "NEHALEM"


prepare()
