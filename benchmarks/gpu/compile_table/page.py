"""The page of the docs that holds the table."""

from collections.abc import Sequence
from importlib.metadata import version

from compile_table.occupancy import MULTIPROCESSORS
from compile_table.reasons import FREE_BYTES, REASONS
from compile_table.rows import Row, markdown

_HEAD = """# What the kernels compile to

Made with triton {triton} and its ptxas; do not edit:

```
python benchmarks/gpu/compile_table --output docs/gpu/compile-table.md
python benchmarks/gpu/compile_table --check docs/gpu/compile-table.md
```

This takes no device: the functions of the worker are called as a step calls them, and what they
launch is compiled and not run. `make test` compiles some of the rows and compares them.

- **variant**: query heads/KV heads x size of a head, type, `fp8-cache`, `exact` mode;
  inputs->outputs of a product, `codes4-g128` with codes of 4 bits and groups of 128 inputs,
  `int8` with int8 on both sides. A kernel that several variants share stands once.
- **registers** and **spills** are of a thread, the latter in bytes. A spill above {free} bytes
  needs a reason in `benchmarks/gpu/compile_table/reasons.py`.
- **shared memory**: bytes of a block of threads.
- **tensor cores**: their instruction in the PTX. float32 is multiplied exactly, without them.
- **resident warps**: as many as registers, shared memory and threads let a multiprocessor hold.

The last column is arithmetic, and says nothing of speed.

"""


def page(rows: Sequence[Row]) -> str:
    """Return the page of all `rows`."""
    parts = [_HEAD.format(triton=version("triton"), free=FREE_BYTES)]
    if REASONS:
        parts.append("## Spills that stay\n\n| kernel | variant | why |\n| --- | --- | --- |\n")
        parts += [
            f"| {kernel} | {variant} | {why} |\n" for (kernel, variant), why in REASONS.items()
        ]
        parts.append("\n")
    for capability in MULTIPROCESSORS:
        name = f"{capability // 10}.{capability % 10}"
        some = [row for row in rows if row.capability == name]
        parts.append(f"## Compute capability {name}\n\n{markdown(some)}\n")
    return "".join(parts).rstrip("\n") + "\n"
