"""How compiled kernels sum: the layouts of their products and reductions, without a device.

Run as a program, where kernels are not interpreted: `python compiled_sums.py CAPABILITY TYPE CACHE`
prints an object with what decodes do, decodes of other tables, and chunks in tiles of 16 and 64.
"""

import json
import re
import sys

from triton import compile as compile_kernel
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pagewire_worker.triton_kernels.chunk_attention import _attend_tiles
from pagewire_worker.triton_kernels.decode_attention import _decode_splits

HEADS = {"NUM_HEADS": 28, "GROUP": 7, "WIDTH": 128}
CUT = {"SPLIT": 256, "TILE": 64, "BLOCK_SIZE": 16}
OTHERS = {"WINDOW": 0, "HAS_SOFTCAP": False, "INTERPRETED": False}
FLOATS = ("score_scale", "softcap", "value_scale")
PARTIALS = ("sums_out", "greatest_out", "total_out")
INDICES = (
    *("tile_sequences", "tile_firsts", "which", "firsts"),
    *("query_starts", "seq_lens", "tables"),
)
ALIGNED = (
    "query",
    "key",
    "value",
    "attended",
    *PARTIALS,
    "block_stride",
    "token_stride",
    "head_stride",
    "head_dim",
)

_SUMS = ("tt.dot %", "warp_group_dot %", "}) : (tensor")
"""Products, and the ends of reductions."""


def compiled(kernel, capability, dtype, cache, rows, aligned=ALIGNED, **sizes):
    """Return `kernel` as it is for devices of a compute capability."""
    constants = {**HEADS, **CUT, **OTHERS, "ROWS": rows, **sizes}
    types = {}
    for name in kernel.arg_names:
        if name in constants:
            types[name] = "constexpr"
        elif name in ("query", "attended"):
            types[name] = f"*{dtype}"
        elif name in ("key", "value"):
            types[name] = f"*{cache}"
        elif name in PARTIALS:
            types[name] = "*fp32"
        elif name in INDICES:
            types[name] = "*i32"
        else:
            types[name] = "fp32" if name in FLOATS else "i32"
    attributes = {
        (number,): [["tt.divisibility", 16]]
        for number, name in enumerate(kernel.arg_names)
        if name in aligned
    }
    source = ASTSource(fn=kernel, signature=types, constexprs=constants, attrs=attributes)
    return compile_kernel(source, target=GPUTarget("cuda", capability, 32))


def sums_of(kernel, capability, dtype, cache, rows, aligned=ALIGNED):
    """Return each product and reduction, in order, with the layouts of what goes in and out."""
    code = compiled(kernel, capability, dtype, cache, rows, aligned).asm["ttgir"]
    layouts = dict(re.findall(r"^(#\w+) = (.*)$", code, re.MULTILINE))
    found = []
    for line in code.splitlines():
        if any(sign in line for sign in _SUMS):
            plain = re.sub(r"%[\w#]+", "%", line.split(" loc(")[0].strip())
            found.append(re.sub(r"#\w+", lambda name: layouts.get(name[0], name[0]), plain))
    return found


def main():
    """Print what four kernels do."""
    capability, dtype, cache = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    kind = (capability, dtype, cache)
    tables = (*ALIGNED, "table_stride", "num_splits")
    found = {
        "decode": sums_of(_decode_splits, *kind, 16),
        "decode of other tables": sums_of(_decode_splits, *kind, 16, tables),
        "chunk of 16": sums_of(_attend_tiles, *kind, 16),
        "chunk of 64": sums_of(_attend_tiles, *kind, 64),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
