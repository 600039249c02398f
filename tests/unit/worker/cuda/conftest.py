"""What torch hands out without a value is NaN in these tests: on a device it is anything."""

import pytest

from support.uninitialised import filled_with_nan


@pytest.fixture(autouse=True)
def _nan_in_new_memory():
    with filled_with_nan():
        yield
