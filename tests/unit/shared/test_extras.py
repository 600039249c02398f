import pytest

from pagewire_shared.errors import StartupError
from pagewire_shared.process.extras import needs_extra


def test_a_missing_package_of_others_names_itself_and_the_extra() -> None:
    with (
        pytest.raises(
            StartupError, match=r"no_such_thing is not.*pip install 'pagewire\[kvstore\]'"
        ),
        needs_extra("kvstore"),
    ):
        import no_such_thing.inner  # noqa: F401


def test_a_missing_module_of_pagewire_raises_its_own_error() -> None:
    with pytest.raises(ModuleNotFoundError), needs_extra("kvstore"):
        import pagewire_shared.no_such_thing  # noqa: F401


def test_a_missing_name_in_a_module_raises_its_own_error() -> None:
    with pytest.raises(ImportError, match="cannot import name"), needs_extra("kvstore"):
        from json import no_such_thing  # noqa: F401
