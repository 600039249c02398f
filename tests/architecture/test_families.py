"""A family of models is named in its own module: everything else computes what a plan says."""

import re

import pytest

from pagewire_worker.families.registry import MODULES
from support.source_tree import package_folders, relative

OWN = {
    family.architecture: str(module.__file__)
    for module in MODULES
    for family in (*module.FAMILIES, *getattr(module, "NESTED", ()))
}


@pytest.mark.parametrize("architecture", sorted(OWN))
def test_an_architecture_is_named_in_the_module_of_its_family(architecture: str) -> None:
    named = re.compile(rf"\b{architecture}\b")
    found = [
        relative(path)
        for package in package_folders()
        for path in package.rglob("*.py")
        if named.search(path.read_text())
    ]
    assert found == [path for path in found if OWN[architecture].endswith(path)]
    assert len(found) == 1
