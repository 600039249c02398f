"""Compiles the worker's kernels when Pagewire is installed or a wheel of it is built (ADR 17).

Without a C++ compiler the installation goes on and has none: the worker then says so and computes
with torch. wheels/build_wheels.py names the processor that the kernels are compiled for in
PAGEWIRE_WHEEL_MACHINE; then a wheel without them is a failure.
"""

import importlib.util
import os
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "services/worker/pagewire_worker/cpu_kernels"
IN_WHEEL = "pagewire_worker/cpu_kernels"


class KernelsHook(BuildHookInterface[Any]):
    """Adds the compiled kernels to what is built."""

    PLUGIN_NAME = "custom"
    _folder: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and make a wheel with kernels one of this platform."""
        if self.target_name != "wheel":
            return
        build = _load_build(Path(self.root) / PACKAGE / "build.py")
        machine = os.environ.get("PAGEWIRE_WHEEL_MACHINE")
        if machine:
            self._compile_for(machine, build, build_data)
            return
        try:
            library = build.LIBRARY if build.is_built() else build.build()
        except build.BuildError as error:
            self.app.display_warning(f"the kernels for CPUs were not compiled: {error}")
            return
        if version == "editable":
            return
        build_data["artifacts"].append(f"{PACKAGE}/{library.name}")
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"

    def _compile_for(self, machine: str, build: ModuleType, build_data: dict[str, Any]) -> None:
        """Compile for a processor that is perhaps not this one, apart from the library here."""
        self._folder = tempfile.TemporaryDirectory(prefix="pagewire-wheel-")
        library = build.build(Path(self._folder.name) / build.LIBRARY.name, machine)
        build_data["force_include"][str(library)] = f"{IN_WHEEL}/{library.name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-linux_{machine}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled for the wheel alone."""
        if self._folder is not None:
            self._folder.cleanup()


def _load_build(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("pagewire_kernels_build", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
