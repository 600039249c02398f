"""Runs a role with the code of one tree, whatever else is installed: run_role_from.py TREE MODULE
FLAGS. Ends with a message where Python would take a package from elsewhere."""

import runpy
import sys
from importlib.util import find_spec
from pathlib import Path


def main() -> None:
    """Become the role."""
    tree, module = Path(sys.argv[1]).resolve(), sys.argv[2]
    for name in (module, "pagewire_shared", "pagewire_protos"):
        spec = find_spec(name)
        folders = spec.submodule_search_locations if spec is not None else None
        for folder in folders or ["nowhere"]:
            if not Path(folder).resolve().is_relative_to(tree):
                sys.exit(f"{name} comes from {folder}, not from {tree}")
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
