"""Some of the kernels that the worker launches, compiled without a device.

Run as a program, where kernels are not interpreted and benchmarks/gpu is on the path: prints an
object from the capability and the name of a variant to what its kernels are.
"""

import json
import re
import sys

from compile_table.launches import Compiler
from compile_table.rows import Row, markdown
from compile_table.variants import attention_variant, codes_variant, groups, latent_variant

ATTENTION = [
    (90, "32/8x128", "bf16", False),
    (90, "32/8x128", "bf16", True),
    (90, "16/8x256-window-softcap", "fp32", False),
]
"""Capability, heads, type, and whether the cache has 8-bit floats."""

CODES = [(80, "codes4-g128-zeros", "fp16"), (90, "codes4-g128-zeros", "bf16")]
"""Capability, codes and type."""

LATENTS = 90, "bf16"
"""Capability and type."""

SAMPLING = 89, "filters fp32"

_SUMS = ("tt.dot %", "warp_group_dot %", "}) : (tensor")
"""Products, and the ends of reductions."""


def sums_of(code):
    """Return each product and reduction of ttgir, in order, with the layouts of what goes in and
    out."""
    layouts = dict(re.findall(r"^(#\w+) = (.*)$", code, re.MULTILINE))
    found = []
    for line in code.splitlines():
        if any(sign in line for sign in _SUMS):
            plain = re.sub(r"%[\w#]+", "%", line.split(" loc(")[0].strip())
            found.append(re.sub(r"#\w+", lambda name: layouts.get(name[0], name[0]), plain))
    return found


def described(capability, variant, compiler):
    """Return the kernels of a variant by name."""
    found = {}
    for launch in compiler.launches_of(variant.launch):
        row = Row.of(capability, variant.name, launch)
        found[launch.kernel] = {
            "line": markdown([row]).splitlines()[-1],
            "fault": row.fault,
            "shared": row.shared,
            "hash": launch.compiled.hash,
            "sums": sums_of(launch.compiled.asm["ttgir"]),
            "ptx": launch.compiled.asm["ptx"] if launch.kernel == "merge_splits" else "",
        }
    return found


def main():
    """Print all."""
    found = {}
    for capability, heads, dtype, fp8 in ATTENTION:
        compiler = Compiler(capability)
        for kind in ({}, {"exact": True}, {"exact": True, "table_width": 32}):
            variant = attention_variant(heads, dtype, fp8=fp8, **kind)
            name = f"{capability} {variant.name}" + " wide" * ("table_width" in kind)
            found[name] = described(capability, variant, compiler)
    for capability, codes, dtype in CODES:
        variant = codes_variant(codes, dtype)
        found[f"{capability} {variant.name}"] = described(capability, variant, Compiler(capability))
    capability, dtype = LATENTS
    variant = latent_variant(dtype)
    found[f"{capability} {variant.name}"] = described(capability, variant, Compiler(capability))
    capability, name = SAMPLING
    [variant] = (v for group in groups() for v in group if v.name == name)
    found[f"{capability} {name}"] = described(capability, variant, Compiler(capability))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
