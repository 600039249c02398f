"""Copies of what compiles the kernels, and compilers that only write down what they were asked."""

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

from support.source_tree import ROOT

FUSED = ROOT / "services" / "worker" / "pagewire_worker" / "cpu_kernels"


def copy_of_build(folder: Path) -> ModuleType:
    """Return build.py as a module of its own, beside its own sources and without a library."""
    copied = folder / "fused"
    shutil.copytree(FUSED / "kernels", copied / "kernels")
    shutil.copy(FUSED / "build.py", copied)
    return load_module(copied / "build.py", "copied_kernels_build")


def load_module(path: Path, name: str) -> ModuleType:
    """Return the module at `path`, which no package holds."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fake_compiler(path: Path, exit_status: int = 0) -> Path:
    """Write a compiler whose output file holds its arguments. It says what it does, and adds its
    command line to a file beside it, `path`.log."""
    path.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        "arguments = sys.argv[1:]\n"
        f"with open({str(path) + '.log'!r}, 'a') as log:\n"
        "    print(*arguments, file=log)\n"
        "print('compiling', arguments[-1])\n"
        "print('out of registers', file=sys.stderr)\n"
        f"if {exit_status}:\n"
        f"    sys.exit({exit_status})\n"
        "with open(arguments[arguments.index('-o') + 1], 'w') as made:\n"
        "    print(*arguments, file=made)\n"
        "    for name in arguments:\n"
        "        if name.endswith('.o') and '-shared' in arguments:\n"
        "            made.write(open(name).read())\n"
    )
    path.chmod(0o755)
    return path
