"""`pagewire frontend|scheduler|worker|kvstore`: replaces this process by that role's program.

The role's program parses the flags.
"""

import importlib.util
import os
import sys
from collections.abc import Sequence

from pagewire_shared.errors import StartupError
from pagewire_shared.process.allocator import with_allocator_settings


def run(name: str, argv: Sequence[str]) -> int:
    """Replace this process by `python -m pagewire_<name>`, which sets the exit status."""
    module = f"pagewire_{name}"
    if importlib.util.find_spec(module) is None:
        raise StartupError(f"{module} is not installed")
    sys.stdout.flush()
    environ = with_allocator_settings(os.environ, name)
    os.execve(sys.executable, [sys.executable, "-P", "-m", module, *argv], environ)
