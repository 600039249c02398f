"""The models of the distribution by name, and that every role knows them by it."""

import pytest

from pagewire.models import BUILTIN_FOLDERS
from pagewire_shared.identity.model_folder import BUILTIN_NAMES, builtin_folder


@pytest.mark.parametrize("name", BUILTIN_NAMES)
def test_users_and_roles_find_the_same_folder(name):
    folder = builtin_folder(name)
    assert (folder / "model.safetensors").is_file()
    assert folder == BUILTIN_FOLDERS[name]


def test_other_names_have_no_folder():
    assert builtin_folder("pagewire-builtin-none") is None
