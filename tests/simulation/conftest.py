"""Rules of all simulations."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def quiet_logs() -> Iterator[None]:
    """Log nothing: simulated processes report thousands of faults that are meant."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
