"""These tests run poisoned: new memory is NaN, and kernels stay within their tensors."""

import pytest

from support.poison import poisoned


@pytest.fixture(autouse=True)
def _poisoned():
    with poisoned():
        yield
